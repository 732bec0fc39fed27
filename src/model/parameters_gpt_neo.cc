// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_neo/modeling_gpt_neo.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t positions = config.Int("max_position_embeddings");
  const int64_t inner = config.MaybeInt("intermediate_size").value_or(4 * hidden);
  table.AddLayerNorm(at + "ln_1", hidden);
  for (const char* projection : {"k_proj", "v_proj", "q_proj"}) {
    table.AddLinear(at + "attn.attention." + projection, hidden, hidden, false);
  }
  table.AddLinear(at + "attn.attention.out_proj", hidden, hidden);
  table.AddBuffer(at + "attn.attention.bias", {1, 1, positions, positions}, DType::kBool);
  table.AddLayerNorm(at + "ln_2", hidden);
  table.AddLinear(at + "mlp.c_fc", hidden, inner);
  table.AddLinear(at + "mlp.c_proj", inner, hidden);
}

}  // namespace

Result<ParameterTable> GptNeoParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("transformer.wte.weight", {config.Int("vocab_size"), hidden});
  table.Add("transformer.wpe.weight", {config.Int("max_position_embeddings"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, "transformer.h." + std::to_string(layer) + ".");
  }
  table.AddLayerNorm("transformer.ln_f", hidden);
  switch (task) {
    case Task::kCausalLm:
      if (!config.Bool("tie_word_embeddings")) {
        table.AddLinear("lm_head", hidden, config.Int("vocab_size"), false);
      }
      return table;
    case Task::kSequenceClassification:
      table.AddLinear("score", hidden, config.Int("num_labels"), false);
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
