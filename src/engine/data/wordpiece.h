// SPDX-License-Identifier: Apache-2.0
//
// WordPiece: BERT's model. From the left, the longest token that fits; those inside a word begin
// with a prefix.
//
//   "embeddings"  ->  "em", "##bed", "##ding", "##s"
//
// A word that cannot be cut to its end is one unknown token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/token_model.h"
#include "engine/data/vocabulary.h"

namespace headroom::engine {

struct WordPieceOptions {
  int32_t unknown_id = 0;
  std::string prefix = "##";
  size_t longest_word = 100;  // characters; a longer word is unknown
};

class WordPiece final : public TokenModel {
 public:
  WordPiece(std::shared_ptr<const Vocabulary> vocabulary, WordPieceOptions options);

  void Append(std::string_view word, std::vector<int32_t>& ids) const override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  WordPieceOptions options_;
};

}  // namespace headroom::engine
