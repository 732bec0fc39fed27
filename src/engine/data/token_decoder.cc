// SPDX-License-Identifier: Apache-2.0
//
// The rules are those of tokenizers 0.23, src/decoders/wordpiece.rs and
// src/pre_tokenizers/byte_level.rs.
#include "engine/data/token_decoder.h"

#include <optional>
#include <utility>

#include "engine/data/pre_tokenizer.h"
#include "engine/data/unicode.h"

namespace headroom::engine {
namespace {

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

void CleanUp(std::string& token) {
  constexpr std::pair<std::string_view, std::string_view> kReplacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kReplacements) ReplaceAll(token, from, to);
}

std::string JoinWordPieces(const TokenDecoder& decoder, std::span<const std::string_view> tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string token(tokens[i]);
    if (i > 0) {
      if (token.starts_with(decoder.prefix)) {
        token.erase(0, decoder.prefix.size());
      } else {
        token.insert(0, " ");
      }
    }
    if (decoder.cleanup) CleanUp(token);
    text += token;
  }
  return text;
}

std::string JoinBytes(std::span<const std::string_view> tokens) {
  std::string bytes;
  for (const std::string_view token : tokens) {
    // An added token is written as it is.
    bytes += CharactersToBytes(token).value_or(std::string(token));
  }
  return ToValidUtf8(bytes);
}

}  // namespace

std::string TokenDecoder::Decode(std::span<const std::string_view> tokens) const {
  if (kind == Kind::kWordPiece) return JoinWordPieces(*this, tokens);
  if (kind == Kind::kByteLevel) return JoinBytes(tokens);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace headroom::engine
