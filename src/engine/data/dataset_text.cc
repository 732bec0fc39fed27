// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/format.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenizer.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestText = GiB(4);
// Words of a text being cut take some twenty times its size.
constexpr size_t kPiece = 1 << 20;

Result<std::vector<fs::path>> TextsOf(const fs::path& path) {
  std::error_code failure;
  if (!fs::is_directory(path, failure)) return std::vector<fs::path>{path};
  std::vector<fs::path> texts;
  for (fs::directory_iterator entry(path, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->path().extension() == ".txt") texts.push_back(entry->path());
  }
  if (failure) return Error::BadInput(Format("{}: {}", path.string(), failure.message()));
  if (texts.empty()) return Error::BadInput(Format("{}: holds no .txt file", path.string()));
  std::ranges::sort(texts);
  return texts;
}

bool IsInk(char c) { return static_cast<unsigned char>(c) > ' '; }

// Where the first piece of `text` ends: behind a single line feed between two lines that touch it
// with ink. There every pattern cuts anyway, so that the tokens are those of the text as a whole.
size_t PieceEnd(std::string_view text) {
  if (text.size() <= kPiece) return text.size();
  for (size_t at = text.find('\n', kPiece); at != std::string_view::npos;
       at = text.find('\n', at + 1)) {
    if (IsInk(text[at - 1]) && at + 1 < text.size() && IsInk(text[at + 1])) return at + 1;
  }
  return text.size();
}

Status AppendText(std::string_view text, const Tokenizer& tokenizer, std::vector<int32_t>& ids) {
  while (!text.empty()) {
    const size_t end = PieceEnd(text);
    HEADROOM_ASSIGN_OR_RETURN(const Encoding piece,
                              tokenizer.Encode(text.substr(0, end), {.add_special_tokens = false}));
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    text.remove_prefix(end);
  }
  return {};
}

}  // namespace

Result<Dataset> LoadText(const fs::path& path, const Tokenizer& tokenizer, int64_t sequence,
                         Task task) {
  HEADROOM_CHECK(sequence > 0, "a sequence of no tokens");
  const SpecialIds& special = tokenizer.special();
  const bool framed = task == Task::kMaskedLm && special.cls && special.sep;
  const int64_t room = framed ? sequence - 2 : sequence;
  if (room <= 0) {
    return Error::BadInput(
        Format("a sequence of {} leaves no room between the special tokens", sequence));
  }
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<fs::path> texts, TextsOf(path));
  std::vector<int32_t> ids;
  for (const fs::path& text : texts) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string content, ReadFile(text, kLargestText));
    if (const Status status = AppendText(content, tokenizer, ids); !status.ok()) {
      return status.error().In(text.string());
    }
    if (!framed && special.eos) ids.push_back(*special.eos);
  }
  std::vector<Example> examples;
  for (auto first = ids.begin(); first != ids.end();) {
    const auto last = first + std::min<int64_t>(room, ids.end() - first);
    Example example;
    if (framed) example.ids.push_back(*special.cls);
    example.ids.insert(example.ids.end(), first, last);
    if (framed) example.ids.push_back(*special.sep);
    example.labels = example.ids;
    // One token predicts nothing.
    if (example.ids.size() > 1 || examples.empty()) examples.push_back(std::move(example));
    first = last;
  }
  if (ids.size() < 2) return Error::BadInput(Format("{}: holds no text", path.string()));
  return Dataset(std::move(examples));
}

}  // namespace headroom::engine
