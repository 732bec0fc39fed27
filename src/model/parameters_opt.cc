// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/opt/modeling_opt.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("ffn_dim");
  const bool bias = config.Bool("enable_bias");
  for (const char* projection : {"k_proj", "v_proj", "q_proj", "out_proj"}) {
    table.AddLinear(at + "self_attn." + projection, hidden, hidden, bias);
  }
  table.AddLayerNorm(at + "self_attn_layer_norm", hidden);
  table.AddLinear(at + "fc1", hidden, inner, bias);
  table.AddLinear(at + "fc2", inner, hidden, bias);
  table.AddLayerNorm(at + "final_layer_norm", hidden);
}

}  // namespace

Result<ParameterTable> OptParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  if (!config.Bool("layer_norm_elementwise_affine")) {
    return Error::Unsupported("opt without layer_norm_elementwise_affine is not modelled");
  }
  constexpr int64_t kPositionOffset = 2;  // OPTLearnedPositionalEmbedding
  const int64_t hidden = config.Int("hidden_size");
  const int64_t width = config.Int("word_embed_proj_dim");
  const std::string at = "model.decoder.";
  ParameterTable table;
  table.Add(at + "embed_tokens.weight", {config.Int("vocab_size"), width});
  table.Add(at + "embed_positions.weight",
            {config.Int("max_position_embeddings") + kPositionOffset, hidden});
  if (width != hidden) {
    table.AddLinear(at + "project_out", hidden, width, false);
    table.AddLinear(at + "project_in", width, hidden, false);
  }
  if (config.Bool("do_layer_norm_before") && !config.Bool("_remove_final_layer_norm")) {
    table.AddLayerNorm(at + "final_layer_norm", hidden);
  }
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, at + "layers." + std::to_string(layer) + ".");
  }
  switch (task) {
    case Task::kCausalLm:
      if (!config.Bool("tie_word_embeddings")) {
        table.AddLinear("lm_head", width, config.Int("vocab_size"), false);
      }
      return table;
    case Task::kSequenceClassification:
      table.AddLinear("score", width, config.Int("num_labels"), false);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
