// SPDX-License-Identifier: Apache-2.0
//
// One function per architecture family that lists its parameters and buffers, in the order of
// named_parameters(); the files are parameters_<family>.cc. See parameter_table.h.
#pragma once

#include <string>
#include <string_view>

#include "model/config.h"
#include "model/parameter_table.h"
#include "model/recipe.h"

namespace headroom {

Result<ParameterTable> AlbertParameters(const ModelConfig& config, Task task);
Result<ParameterTable> BartParameters(const ModelConfig& config, Task task);
Result<ParameterTable> BertParameters(const ModelConfig& config, Task task);
Result<ParameterTable> BloomParameters(const ModelConfig& config, Task task);
Result<ParameterTable> CodegenParameters(const ModelConfig& config, Task task);
Result<ParameterTable> DebertaV2Parameters(const ModelConfig& config, Task task);
Result<ParameterTable> DistilBertParameters(const ModelConfig& config, Task task);
Result<ParameterTable> ElectraParameters(const ModelConfig& config, Task task);
Result<ParameterTable> DecoderParameters(const ModelConfig& config, Task task);
Result<ParameterTable> FalconParameters(const ModelConfig& config, Task task);
Result<ParameterTable> Gpt2Parameters(const ModelConfig& config, Task task);
Result<ParameterTable> GptBigcodeParameters(const ModelConfig& config, Task task);
Result<ParameterTable> GptjParameters(const ModelConfig& config, Task task);
Result<ParameterTable> GptNeoParameters(const ModelConfig& config, Task task);
Result<ParameterTable> GptNeoxParameters(const ModelConfig& config, Task task);
Result<ParameterTable> T5Parameters(const ModelConfig& config, Task task);
Result<ParameterTable> TorchTransformerParameters(const ModelConfig& config, Task task);
Result<ParameterTable> VitParameters(const ModelConfig& config, Task task);
Result<ParameterTable> MptParameters(const ModelConfig& config, Task task);
Result<ParameterTable> OptParameters(const ModelConfig& config, Task task);
Result<ParameterTable> ModernBertParameters(const ModelConfig& config, Task task);
Result<ParameterTable> RobertaParameters(const ModelConfig& config, Task task);
Result<ParameterTable> WhisperParameters(const ModelConfig& config, Task task);

// ---- For the builders ----

// "task masked-lm is not modelled for model_type "llama"".
Error UnsupportedTask(const ModelConfig& config, Task task);
// An error unless the attribute `size` is a multiple of the attribute `parts`.
Status CheckDivisible(const ModelConfig& config, std::string_view size, std::string_view parts);

// BertEmbeddings at `at` ("bert.embeddings."), `width` wide.
void AddBertEmbeddings(ParameterTable& table, const ModelConfig& config, const std::string& at,
                       int64_t width);
// The layers of one of BART's two stacks (Whisper's too): `side` is "encoder" or "decoder".
void AddBartLayers(ParameterTable& table, const ModelConfig& config, const std::string& side);
// Whether pos_att_type names `term` ("c2p", "p2c"), as a list or in one string.
bool HasPositionTerm(const ModelConfig& config, std::string_view term);
// The linear layer onto the vocabulary at `name`. Its weight is the word embedding unless the
// config unties them; `tied_bias` says that its bias is then another module's too, and so stands
// there.
void AddDecoder(ParameterTable& table, const ModelConfig& config, const std::string& name,
                int64_t width, bool tied_bias);

}  // namespace headroom
