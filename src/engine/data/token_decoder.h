// SPDX-License-Identifier: Apache-2.0
//
// TokenDecoder: tokens back as a text: tokenizer.json's "decoder".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace headroom::engine {

struct TokenDecoder {
  enum class Kind : uint8_t {
    kSpaces,     // tokens with spaces between them
    kWordPiece,  // those with the prefix join the token before
    kByteLevel,  // characters become the bytes they stand for
  };
  Kind kind = Kind::kSpaces;
  std::string prefix = "##";  // kWordPiece
  bool cleanup = true;        // kWordPiece: no space before punctuation

  std::string Decode(std::span<const std::string_view> tokens) const;
};

}  // namespace headroom::engine
