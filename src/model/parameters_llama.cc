// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/llama/modeling_llama.py.
#include "model/parameter_builders.h"

namespace headroom {

Result<ParameterTable> LlamaParameters(const ModelConfig& config, Task task) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t kv_heads = config.MaybeInt("num_key_value_heads").value_or(heads);
  if (!config.MaybeInt("head_dim")) {
    HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  }
  if (kv_heads <= 0 || heads % kv_heads != 0) {
    return Error::BadInput("num_attention_heads " + std::to_string(heads) +
                           " is not divisible by num_key_value_heads " + std::to_string(kv_heads) +
                           ": correct one of them in config.json");
  }
  const int64_t head_dim = config.MaybeInt("head_dim").value_or(hidden / heads);
  const int64_t inner = config.Int("intermediate_size");
  const bool attention_bias = config.MaybeBool("attention_bias").value_or(false);
  const bool mlp_bias = config.MaybeBool("mlp_bias").value_or(false);

  ParameterTable table;
  table.Add("model.embed_tokens.weight", {config.Int("vocab_size"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    table.AddLinear(at + "self_attn.q_proj", hidden, heads * head_dim, attention_bias);
    table.AddLinear(at + "self_attn.k_proj", hidden, kv_heads * head_dim, attention_bias);
    table.AddLinear(at + "self_attn.v_proj", hidden, kv_heads * head_dim, attention_bias);
    table.AddLinear(at + "self_attn.o_proj", heads * head_dim, hidden, attention_bias);
    table.AddLinear(at + "mlp.gate_proj", hidden, inner, mlp_bias);
    table.AddLinear(at + "mlp.up_proj", hidden, inner, mlp_bias);
    table.AddLinear(at + "mlp.down_proj", inner, hidden, mlp_bias);
    table.Add(at + "input_layernorm.weight", {hidden});
    table.Add(at + "post_attention_layernorm.weight", {hidden});
  }
  table.Add("model.norm.weight", {hidden});
  table.AddBuffer("model.rotary_emb.inv_freq", {head_dim / 2}, DType::kFloat32);
  table.AddBuffer("model.rotary_emb.original_inv_freq", {head_dim / 2}, DType::kFloat32);
  switch (task) {
    case Task::kCausalLm:
      if (!config.MaybeBool("tie_word_embeddings").value_or(false)) {
        table.AddLinear("lm_head", hidden, config.Int("vocab_size"), false);
      }
      return table;
    case Task::kSequenceClassification:
    case Task::kTokenClassification: {
      const bool tokens = task == Task::kTokenClassification;
      table.AddLinear("score", hidden, config.Int("num_labels"), tokens);
      return table;
    }
    default: return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
