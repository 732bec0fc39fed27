// SPDX-License-Identifier: Apache-2.0
#include "engine/data/wordpiece.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace headroom::engine {
namespace {

bool BeginsCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80; }

}  // namespace

WordPiece::WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {}

void WordPiece::Append(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  const auto unknown = [&] {
    ids.resize(before);
    ids.push_back(options_.unknown_id);
  };
  if (static_cast<size_t>(std::ranges::count_if(word, BeginsCharacter)) > options_.longest_word) {
    return unknown();
  }
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    piece = begin == 0 ? "" : options_.prefix;
    const size_t prefix = piece.size();
    piece += word.substr(begin);
    std::optional<int32_t> id;
    while (piece.size() > prefix && !(id = vocabulary_->Find(piece))) {
      while (!BeginsCharacter(piece.back())) piece.pop_back();
      piece.pop_back();
    }
    if (!id) return unknown();
    ids.push_back(*id);
    begin += piece.size() - prefix;
  }
}

}  // namespace headroom::engine
