// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt2/modeling_gpt2.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> Gpt2Parameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.MaybeInt("n_inner").value_or(4 * hidden);
  ParameterTable table;
  table.Add("transformer.wte.weight", {config.Int("vocab_size"), hidden});
  table.Add("transformer.wpe.weight", {config.Int("max_position_embeddings"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    table.AddLayerNorm(at + "ln_1", hidden);
    table.AddConv1d(at + "attn.c_attn", hidden, 3 * hidden);
    table.AddConv1d(at + "attn.c_proj", hidden, hidden);
    table.AddLayerNorm(at + "ln_2", hidden);
    table.AddConv1d(at + "mlp.c_fc", hidden, inner);
    table.AddConv1d(at + "mlp.c_proj", inner, hidden);
  }
  table.AddLayerNorm("transformer.ln_f", hidden);
  switch (task) {
    case Task::kCausalLm:
      if (!config.MaybeBool("tie_word_embeddings").value_or(true)) {
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
