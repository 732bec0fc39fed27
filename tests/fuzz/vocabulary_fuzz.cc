// SPDX-License-Identifier: Apache-2.0
//
// vocab.txt, or, where the bytes hold a zero, vocab.json before it and merges.txt behind it: a
// tokenizer, or one line that says why not.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/file.h"
#include "engine/data/tokenizer.h"
#include "temporary_folder.h"

namespace {

namespace fs = std::filesystem;

// Loading reads folders, so that they are what is made.
fs::path Folder(bool merges) {
  static const headroom::TemporaryFolder root("vocabulary_fuzz");
  fs::path folder = root.path() / (merges ? "merges" : "vocabulary");
  fs::create_directory(folder);
  return folder;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  using namespace headroom::engine;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  const bool merges = zero != std::string_view::npos;
  const fs::path folder = Folder(merges);
  if (merges) {
    HEADROOM_CHECK(WriteFile(folder / "vocab.json", text.substr(0, zero)).ok(), "no disk");
    HEADROOM_CHECK(WriteFile(folder / "merges.txt", text.substr(zero + 1)).ok(), "no disk");
  } else {
    HEADROOM_CHECK(WriteFile(folder / "vocab.txt", text).ok(), "no disk");
  }
  const auto tokenizer = Tokenizer::Load(folder);
  if (!tokenizer.ok()) {
    HEADROOM_CHECK(!tokenizer.error().message.empty(), "an error without a message");
    return 0;
  }
  const auto encoding = tokenizer->Encode(text.substr(0, 300));
  if (!encoding.ok()) return 0;
  for (const int32_t id : encoding->ids) {
    HEADROOM_CHECK(id >= 0 && id < tokenizer->vocab_size(), "an id beyond the vocabulary");
  }
  tokenizer->Decode(encoding->ids);
  return 0;
}
