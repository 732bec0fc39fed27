// SPDX-License-Identifier: Apache-2.0
//
// Normalizer: what a tokenizer does to a text before it is cut: the steps of tokenizer.json's
// "normalizer", one behind the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom::engine {

struct NormalizerStep {
  enum class Kind : uint8_t { kBert, kNfc, kNfd, kNfkc, kNfkd, kLowercase, kStripAccents };
  Kind kind = Kind::kBert;
  // kBert
  bool clean_text = true;            // drops control characters; every whitespace is a space
  bool handle_chinese_chars = true;  // spaces around ideographs
  bool strip_accents = true;
  bool lowercase = true;
};

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  // REQUIRES: valid UTF-8.
  std::string Apply(std::string_view text) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace headroom::engine
