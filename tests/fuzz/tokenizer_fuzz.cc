// SPDX-License-Identifier: Apache-2.0
//
// tokenizer.json as any bytes: a tokenizer whose ids are below its vocabulary's size, or one line
// that says why not.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/data/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headroom;
  using namespace headroom::engine;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::Parse(text, "fuzz");
  if (!tokenizer.ok()) {
    HEADROOM_CHECK(tokenizer.error().message.starts_with("fuzz"), "a refusal without a place");
    return 0;
  }
  // The file's own bytes hold its tokens.
  const std::string_view lines[] = {"", "Hello  world's caf\xC3\xA9 12\n\t[MASK] \xFF\xE8\xAA\x9E",
                                    text.substr(0, 300)};
  for (const std::string_view line : lines) {
    for (const bool pair : {false, true}) {
      EncodeOptions options{.max_length = pair ? 7 : 0};
      if (pair) options.pair = lines[1];
      const auto encoding = tokenizer->Encode(line, options);
      if (!encoding.ok()) continue;
      HEADROOM_CHECK(encoding->ids.size() == encoding->type_ids.size(), "ids without types");
      for (const int32_t id : encoding->ids) {
        HEADROOM_CHECK(id >= 0 && id < tokenizer->vocab_size(), "an id beyond the vocabulary");
      }
      tokenizer->Decode(encoding->ids, SpecialTokens::kKeep);
    }
  }
  return 0;
}
