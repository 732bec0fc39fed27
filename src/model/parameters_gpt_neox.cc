// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gpt_neox/modeling_gpt_neox.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  const bool attention_bias = config.Bool("attention_bias");
  table.AddLayerNorm(at + "input_layernorm", hidden);
  table.AddLayerNorm(at + "post_attention_layernorm", hidden);
  table.AddLinear(at + "attention.query_key_value", hidden, 3 * hidden, attention_bias);
  table.AddLinear(at + "attention.dense", hidden, hidden, attention_bias);
  table.AddLinear(at + "mlp.dense_h_to_4h", hidden, inner);
  table.AddLinear(at + "mlp.dense_4h_to_h", inner, hidden);
}

// GPTNeoXRotaryEmbedding: int(head_dim * partial_rotary_factor) dimensions turn.
int64_t RotaryDim(const ModelConfig& config) {
  const int64_t head_dim =
      config.MaybeInt("head_dim")
          .value_or(config.Int("hidden_size") / config.Int("num_attention_heads"));
  const std::optional<ModelConfig> rope = config.Object("rope_parameters");
  const double factor = rope ? rope->MaybeFloat("partial_rotary_factor").value_or(1.0) : 1.0;
  return static_cast<int64_t>(static_cast<double>(head_dim) * factor);
}

}  // namespace

Result<ParameterTable> GptNeoxParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("gpt_neox.embed_in.weight", {config.Int("vocab_size"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, "gpt_neox.layers." + std::to_string(layer) + ".");
  }
  table.AddLayerNorm("gpt_neox.final_layer_norm", hidden);
  const int64_t frequencies = (RotaryDim(config) + 1) / 2;  // arange(0, dim, 2)
  table.AddBuffer("gpt_neox.rotary_emb.inv_freq", {frequencies}, DType::kFloat32);
  table.AddBuffer("gpt_neox.rotary_emb.original_inv_freq", {frequencies}, DType::kFloat32);
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
