// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bloom/modeling_bloom.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> BloomParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("transformer.word_embeddings.weight", {config.Int("vocab_size"), hidden});
  table.AddLayerNorm("transformer.word_embeddings_layernorm", hidden);
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    table.AddLayerNorm(at + "input_layernorm", hidden);
    table.AddLinear(at + "self_attention.query_key_value", hidden, 3 * hidden);
    table.AddLinear(at + "self_attention.dense", hidden, hidden);
    table.AddLayerNorm(at + "post_attention_layernorm", hidden);
    table.AddLinear(at + "mlp.dense_h_to_4h", hidden, 4 * hidden);
    table.AddLinear(at + "mlp.dense_4h_to_h", 4 * hidden, hidden);
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
