// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/mpt/modeling_mpt.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> MptParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  constexpr int64_t kExpansion = 4;  // MptMLP does not read expansion_ratio
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("transformer.wte.weight", {config.Int("vocab_size"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "transformer.blocks." + std::to_string(layer) + ".";
    table.AddLayerNorm(at + "norm_1", hidden, false);
    table.AddLinear(at + "attn.Wqkv", hidden, 3 * hidden, false);
    table.AddLinear(at + "attn.out_proj", hidden, hidden, false);
    table.AddLayerNorm(at + "norm_2", hidden, false);
    table.AddLinear(at + "ffn.up_proj", hidden, kExpansion * hidden, false);
    table.AddLinear(at + "ffn.down_proj", kExpansion * hidden, hidden, false);
  }
  table.AddLayerNorm("transformer.norm_f", hidden, false);
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
