// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_bigcode/modeling_gpt_bigcode.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> GptBigcodeParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  if (config.Bool("add_cross_attention")) {
    return Error::Unsupported("gpt_bigcode with add_cross_attention is not modelled");
  }
  const int64_t hidden = config.Int("hidden_size");
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t positions = config.Int("max_position_embeddings");
  const int64_t inner = config.MaybeInt("n_inner").value_or(4 * hidden);
  const int64_t kv_width = config.Bool("multi_query") ? hidden / heads : hidden;
  ParameterTable table;
  table.Add("transformer.wte.weight", {config.Int("vocab_size"), hidden});
  table.Add("transformer.wpe.weight", {positions, hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    table.AddLayerNorm(at + "ln_1", hidden);
    table.AddLinear(at + "attn.c_attn", hidden, hidden + 2 * kv_width);
    table.AddLinear(at + "attn.c_proj", hidden, hidden);
    table.AddLayerNorm(at + "ln_2", hidden);
    table.AddLinear(at + "mlp.c_fc", hidden, inner);
    table.AddLinear(at + "mlp.c_proj", inner, hidden);
  }
  table.AddLayerNorm("transformer.ln_f", hidden);
  table.AddBuffer("transformer.bias", {positions, positions}, DType::kBool);
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
