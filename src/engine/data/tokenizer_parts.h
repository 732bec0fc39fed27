// SPDX-License-Identifier: Apache-2.0
//
// TokenizerParts: what a tokenizer.json comes to. Only the sources of Tokenizer include this.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/data/added_tokens.h"
#include "engine/data/normalizer.h"
#include "engine/data/post_processor.h"
#include "engine/data/pre_tokenizer.h"
#include "engine/data/token_decoder.h"
#include "engine/data/token_model.h"
#include "engine/data/tokenizer.h"
#include "engine/data/vocabulary.h"

namespace headroom::engine {

struct TokenizerParts {
  std::shared_ptr<const Vocabulary> vocabulary;  // the model's, which may lack added tokens
  std::shared_ptr<const TokenModel> model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  TokenDecoder decoder;
  AddedTokens added;
  SpecialIds special;

  std::optional<int32_t> Id(std::string_view token) const;
  std::string_view Token(int32_t id) const;  // empty for an id that is none
  int64_t vocab_size() const;                // the largest id and one

  std::string json;    // the tokenizer.json itself, for Save()
  std::string config;  // tokenizer_config.json as it was beside it; empty without
};

// Reads a tokenizer.json; `special` holds what its tokens' names tell.
Result<std::shared_ptr<TokenizerParts>> ParseTokenizerParts(std::string_view text,
                                                            std::string_view origin);
// The same of JSON that is already read.
Result<std::shared_ptr<TokenizerParts>> MakeTokenizerParts(const nlohmann::json& json,
                                                           std::string_view origin);

}  // namespace headroom::engine
