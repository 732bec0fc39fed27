// SPDX-License-Identifier: Apache-2.0
//
// AddedTokens: the tokens that are found in a text before anything else is done to it, whole:
// "[MASK]", "<|endoftext|>".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/data/normalizer.h"

namespace headroom::engine {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      // left out when decoding
  bool normalized = false;   // is found in the normalised text
  bool single_word = false;  // is not found inside a word
  bool lstrip = false;       // takes the whitespace before it along
  bool rstrip = false;
};

// A part of a text: an added token, or what lies between two.
struct TextPart {
  std::string_view text;
  std::optional<int32_t> id;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  // Null when `id` is none of them.
  const AddedToken* Find(int32_t id) const;
  const AddedToken* Find(std::string_view content) const;

  // Cuts a text at the tokens that are sought before normalising, or at those sought after it.
  // Parts have their order; none is empty. Of tokens that begin alike the longest is found.
  std::vector<TextPart> CutRaw(std::string_view text) const { return Cut(text, raw_); }
  std::vector<TextPart> CutNormalized(std::string_view text) const {
    return Cut(text, normalized_);
  }

 private:
  // Indices of tokens_ and what is sought, by the first byte of that, the longest first.
  struct Sought {
    std::string text;
    size_t token = 0;
  };
  using Table = std::vector<std::vector<Sought>>;

  std::vector<TextPart> Cut(std::string_view text, const Table& table) const;
  static const Sought* FindAt(std::string_view text, size_t at, const Table& table);

  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  Table raw_;
  Table normalized_;
};

}  // namespace headroom::engine
