// SPDX-License-Identifier: Apache-2.0
#include "engine/data/post_processor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace headroom::engine {

PostProcessor::PostProcessor()
    : single_{{.kind = TemplatePiece::Kind::kFirst}},
      pair_{{.kind = TemplatePiece::Kind::kFirst},
            {.kind = TemplatePiece::Kind::kSecond, .type_id = 1}} {}

PostProcessor::PostProcessor(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair)
    : single_(std::move(single)), pair_(std::move(pair)) {}

int64_t PostProcessor::AddedTo(bool pair) const {
  int64_t added = 0;
  for (const TemplatePiece& piece : pair ? pair_ : single_) added += std::ssize(piece.ids);
  return added;
}

Encoding PostProcessor::Apply(const std::vector<int32_t>& first, const std::vector<int32_t>* second,
                              bool tokens) const {
  Encoding encoding;
  for (const TemplatePiece& piece : second != nullptr ? pair_ : single_) {
    if (piece.kind == TemplatePiece::Kind::kTokens && !tokens) continue;
    HEADROOM_CHECK(piece.kind != TemplatePiece::Kind::kSecond || second != nullptr,
                   "a second text in the template of one");
    const std::vector<int32_t>& ids = piece.kind == TemplatePiece::Kind::kTokens  ? piece.ids
                                      : piece.kind == TemplatePiece::Kind::kFirst ? first
                                                                                  : *second;
    encoding.ids.insert(encoding.ids.end(), ids.begin(), ids.end());
    encoding.type_ids.resize(encoding.ids.size(), piece.type_id);
  }
  return encoding;
}

// truncate_encodings(), tokenizers 0.23, src/utils/truncation.rs.
void TruncateLongestFirst(std::vector<int32_t>& first, std::vector<int32_t>* second, int64_t most) {
  const int64_t size = std::ssize(first);
  if (second == nullptr) {
    first.resize(static_cast<size_t>(std::min(size, most)));
    return;
  }
  if (size + std::ssize(*second) <= most) return;
  const int64_t shorter = std::min<int64_t>(size, std::ssize(*second));
  int64_t keep_shorter = shorter;
  int64_t keep_longer = shorter > most ? shorter : std::max(shorter, most - shorter);
  if (keep_shorter + keep_longer > most) {
    keep_shorter = most / 2;
    keep_longer = keep_shorter + most % 2;
  }
  const bool swapped = size > std::ssize(*second);
  first.resize(static_cast<size_t>(std::min(size, swapped ? keep_longer : keep_shorter)));
  second->resize(static_cast<size_t>(
      std::min<int64_t>(std::ssize(*second), swapped ? keep_shorter : keep_longer)));
}

}  // namespace headroom::engine
