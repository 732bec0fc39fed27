// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/gptj/modeling_gptj.py and models/codegen/modeling_codegen.py, which
// differ in how the projections are laid out.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

enum class Projections { kSeparate, kFused };

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at,
              Projections projections) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.MaybeInt("n_inner").value_or(4 * hidden);
  const int64_t rotary_dim = config.Int("rotary_dim");
  // create_sinusoidal_positions: a sine and a cosine for every second dimension.
  const int64_t width = 2 * (((rotary_dim > 0 ? rotary_dim : hidden) + 1) / 2);
  table.AddLayerNorm(at + "ln_1", hidden);
  if (projections == Projections::kFused) {
    table.AddLinear(at + "attn.qkv_proj", hidden, 3 * hidden, false);
  } else {
    for (const char* name : {"k_proj", "v_proj", "q_proj"}) {
      table.AddLinear(at + "attn." + name, hidden, hidden, false);
    }
  }
  table.AddLinear(at + "attn.out_proj", hidden, hidden, false);
  table.AddBuffer(at + "attn.embed_positions", {config.Int("max_position_embeddings"), width},
                  DType::kFloat32);
  table.AddLinear(at + "mlp.fc_in", hidden, inner);
  table.AddLinear(at + "mlp.fc_out", inner, hidden);
}

Result<ParameterTable> Body(const ModelConfig& config, Projections projections) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("transformer.wte.weight", {config.Int("vocab_size"), hidden});
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, "transformer.h." + std::to_string(layer) + ".", projections);
  }
  table.AddLayerNorm("transformer.ln_f", hidden);
  return table;
}

// The head has a bias; tied, it keeps only that.
void AddLmHead(ParameterTable& table, const ModelConfig& config) {
  if (config.Bool("tie_word_embeddings")) {
    table.Add("lm_head.bias", {config.Int("vocab_size")});
  } else {
    table.AddLinear("lm_head", config.Int("hidden_size"), config.Int("vocab_size"));
  }
}

}  // namespace

Result<ParameterTable> GptjParameters(const ModelConfig& config, Task task) {
  HEADROOM_ASSIGN_OR_RETURN(ParameterTable table, Body(config, Projections::kSeparate));
  switch (task) {
    case Task::kCausalLm:
      AddLmHead(table, config);
      return table;
    case Task::kSequenceClassification:
      table.AddLinear("score", config.Int("hidden_size"), config.Int("num_labels"), false);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

Result<ParameterTable> CodegenParameters(const ModelConfig& config, Task task) {
  HEADROOM_ASSIGN_OR_RETURN(ParameterTable table, Body(config, Projections::kFused));
  if (task != Task::kCausalLm) return UnsupportedTask(config, task);
  AddLmHead(table, config);
  return table;
}

}  // namespace headroom
