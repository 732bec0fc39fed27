// SPDX-License-Identifier: Apache-2.0
//
// What the files of the catalogue share: each family's table of models, and how a user's name
// stands in an error.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/catalogue.h"

namespace headroom {

std::span<const KnownModel> EncoderModels();
std::span<const KnownModel> GptModels();
std::span<const KnownModel> LlamaModels();
std::span<const KnownModel> DecoderModels();
std::span<const KnownModel> Seq2SeqModels();

// Another name of a model or the name of one with the same config.
struct ModelAlias {
  std::string_view alias;
  std::string_view name;  // of a KnownModel
};

std::span<const ModelAlias> ModelAliases();

// `name` in quotes on one line: control characters become '?', and what is beyond 100 is cut.
std::string QuotedName(std::string_view name);

}  // namespace headroom
