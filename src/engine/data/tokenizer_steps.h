// SPDX-License-Identifier: Apache-2.0
//
// The steps of a tokenizer.json around its model. A step that is none of ours is an error. Only the
// sources of Tokenizer include this.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "engine/data/normalizer.h"
#include "engine/data/post_processor.h"
#include "engine/data/pre_tokenizer.h"
#include "engine/data/token_decoder.h"

namespace headroom::engine {

Result<Normalizer> ReadNormalizer(const nlohmann::json& json);
Result<PreTokenizer> ReadPreTokenizer(const nlohmann::json& json);
// `vocab_size`: its tokens' ids are below.
Result<PostProcessor> ReadPostProcessor(const nlohmann::json& json, int64_t vocab_size);
Result<TokenDecoder> ReadDecoder(const nlohmann::json& json);

}  // namespace headroom::engine
