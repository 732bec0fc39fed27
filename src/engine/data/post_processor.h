// SPDX-License-Identifier: Apache-2.0
//
// PostProcessor: what stands around the tokens of a text, or of a pair of texts: tokenizer.json's
// "post_processor", as the list of pieces that it comes to.
//
//   BERT, a pair    [CLS]:0  A:0  [SEP]:0  B:1  [SEP]:1        (the number is the type id)
#pragma once

#include <cstdint>
#include <vector>

namespace headroom::engine {

// The tokens of a text or of a pair of texts.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;
};

struct TemplatePiece {
  enum class Kind : uint8_t { kFirst, kSecond, kTokens };
  Kind kind = Kind::kFirst;
  std::vector<int32_t> ids = {};  // kTokens
  int32_t type_id = 0;
};

class PostProcessor {
 public:
  // Nothing stands around them.
  PostProcessor();
  PostProcessor(std::vector<TemplatePiece> single, std::vector<TemplatePiece> pair);

  // How many tokens it adds.
  int64_t AddedTo(bool pair) const;
  // `second`: null for a text alone. `tokens` leaves its own tokens out when false.
  Encoding Apply(const std::vector<int32_t>& first, const std::vector<int32_t>* second,
                 bool tokens) const;

 private:
  std::vector<TemplatePiece> single_;
  std::vector<TemplatePiece> pair_;
};

// Cuts the longer of the two, then both, to `most` tokens together: tokenizers' LongestFirst.
void TruncateLongestFirst(std::vector<int32_t>& first, std::vector<int32_t>* second, int64_t most);

}  // namespace headroom::engine
