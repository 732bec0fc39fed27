// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer.json that older files amount to, and that training writes. Only the sources of
// Tokenizer include this.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace headroom::engine {

struct BertLayout {
  bool lowercase = true;
  bool chinese_chars = true;
  std::optional<bool> strip_accents = {};  // absent: as `lowercase`
};
// BertTokenizer over the tokens of a vocab.txt. Fails when it lacks [UNK], [CLS] or [SEP].
Result<nlohmann::json> BertJson(const nlohmann::json& vocabulary, const BertLayout& layout);

struct ByteLevelLayout {
  bool add_prefix_space = false;
  std::vector<std::string> special_tokens = {};
  bool roberta = false;  // <s> … </s> around texts
};
// GPT2Tokenizer or RobertaTokenizer. `merges`: a list of texts "a b".
Result<nlohmann::json> ByteLevelJson(nlohmann::json vocabulary, nlohmann::json merges,
                                     const ByteLevelLayout& layout);

}  // namespace headroom::engine
