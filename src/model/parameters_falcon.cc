// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/falcon/modeling_falcon.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

// FalconAttention.__init__: rows of the fused projection.
int64_t QkvWidth(const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t head_dim = hidden / heads;
  if (config.MaybeBool("new_decoder_architecture").value_or(false)) {
    return (2 * config.MaybeInt("num_kv_heads").value_or(heads) + heads) * head_dim;
  }
  return config.MaybeBool("multi_query").value_or(false) ? hidden + 2 * head_dim : 3 * hidden;
}

// FalconDecoderLayer.__init__: which norms a layer has.
void AddNorms(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const bool new_architecture = config.MaybeBool("new_decoder_architecture").value_or(false);
  if (!config.MaybeBool("parallel_attn").value_or(false)) {
    table.AddLayerNorm(at + "post_attention_layernorm", hidden);
    table.AddLayerNorm(at + "input_layernorm", hidden);
  } else if (config.MaybeInt("num_ln_in_parallel_attn").value_or(new_architecture ? 2 : 1) == 2) {
    table.AddLayerNorm(at + "ln_attn", hidden);
    table.AddLayerNorm(at + "ln_mlp", hidden);
  } else {
    table.AddLayerNorm(at + "input_layernorm", hidden);
  }
}

// FalconLinear, a class of its own: what replaces nn.Linear by exact type passes it by.
void AddFalconLinear(ParameterTable& table, const std::string& name, int64_t in, int64_t out,
                     bool bias) {
  table.Add(name + ".weight", {out, in});
  if (bias) table.Add(name + ".bias", {out});
}

}  // namespace

Result<ParameterTable> FalconParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.MaybeInt("ffn_hidden_size").value_or(4 * hidden);
  const int64_t head_dim = hidden / config.Int("num_attention_heads");
  const bool bias = config.MaybeBool("bias").value_or(false);
  if (config.MaybeBool("new_decoder_architecture").value_or(false)) {
    HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "num_attention_heads", "num_kv_heads"));
  }
  ParameterTable table;
  table.Add("transformer.word_embeddings.weight", {config.Int("vocab_size"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    AddFalconLinear(table, at + "self_attention.query_key_value", hidden, QkvWidth(config), bias);
    AddFalconLinear(table, at + "self_attention.dense", hidden, hidden, bias);
    AddFalconLinear(table, at + "mlp.dense_h_to_4h", hidden, inner, bias);
    AddFalconLinear(table, at + "mlp.dense_4h_to_h", inner, hidden, bias);
    AddNorms(table, config, at);
  }
  table.AddLayerNorm("transformer.ln_f", hidden);
  // There with ALiBi, too.
  table.AddBuffer("transformer.rotary_emb.inv_freq", {(head_dim + 1) / 2}, DType::kFloat32);
  table.AddBuffer("transformer.rotary_emb.original_inv_freq", {(head_dim + 1) / 2},
                  DType::kFloat32);
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
