// SPDX-License-Identifier: Apache-2.0
//
// PreTokenizer: cuts a text into words, which the vocabulary's model then cuts into tokens: the
// steps of tokenizer.json's "pre_tokenizer", each cutting what the one before left.
//
//   GPT-2    "Hello  world's"  ->  "Hello", "Ġ", "Ġworld", "'s"      (Ġ is how it writes a space)
//   BERT     "hello, world"    ->  "hello", ",", "world"
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/data/pattern.h"

namespace headroom::engine {

// What becomes of the pieces that match: tokenizers' SplitDelimiterBehavior.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

struct PreTokenizerStep {
  enum class Kind : uint8_t { kPattern, kBert, kWhitespace, kPunctuation, kDigits, kByteLevel };
  Kind kind = Kind::kBert;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  std::optional<Pattern> pattern = {};  // kPattern; kByteLevel where it cuts too
  bool invert = false;                  // kPattern: what lies between the matches matches
  bool add_prefix_space = false;        // kByteLevel
};

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  // The words of a text, none of them empty. Fails where a pattern does. REQUIRES: valid UTF-8.
  Result<std::vector<std::string>> Split(std::string_view text) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

// GPT-2's own pattern, which a ByteLevel step has unless told otherwise.
Pattern Gpt2Pattern();

// Bytes as printable characters, GPT-2's bytes_to_unicode(): a space is "Ġ".
std::string BytesToCharacters(std::string_view bytes);
// The other way; null when `characters` has one that stands for no byte.
std::optional<std::string> CharactersToBytes(std::string_view characters);

}  // namespace headroom::engine
