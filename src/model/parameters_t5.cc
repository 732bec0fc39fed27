// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/t5/modeling_t5.py and models/mt5/modeling_mt5.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddAttention(ParameterTable& table, const ModelConfig& config, const std::string& at,
                  bool has_bias) {
  const int64_t hidden = config.Int("d_model");
  const int64_t heads = config.Int("num_heads");
  const int64_t inner = heads * config.Int("d_kv");
  for (const char* projection : {".q", ".k", ".v"}) {
    table.AddLinear(at + projection, hidden, inner, false);
  }
  table.AddLinear(at + ".o", inner, hidden, false);
  if (has_bias) {
    table.Add(at + ".relative_attention_bias.weight",
              {config.Int("relative_attention_num_buckets"), heads});
  }
}

void AddBlock(ParameterTable& table, const ModelConfig& config, const std::string& at, bool first,
              bool is_decoder) {
  const int64_t hidden = config.Int("d_model");
  const int64_t inner = config.Int("d_ff");
  AddAttention(table, config, at + "layer.0.SelfAttention", first);
  table.Add(at + "layer.0.layer_norm.weight", {hidden});
  if (is_decoder) {
    AddAttention(table, config, at + "layer.1.EncDecAttention", false);
    table.Add(at + "layer.1.layer_norm.weight", {hidden});
  }
  const std::string last = at + (is_decoder ? "layer.2." : "layer.1.");
  if (config.Bool("is_gated_act")) {
    table.AddLinear(last + "DenseReluDense.wi_0", hidden, inner, false);
    table.AddLinear(last + "DenseReluDense.wi_1", hidden, inner, false);
  } else {
    table.AddLinear(last + "DenseReluDense.wi", hidden, inner, false);
  }
  table.AddLinear(last + "DenseReluDense.wo", inner, hidden, false);
  table.Add(last + "layer_norm.weight", {hidden});
}

}  // namespace

Result<ParameterTable> T5Parameters(const ModelConfig& config, Task task) {
  if (task != Task::kSeq2SeqLm) return UnsupportedTask(config, task);
  const int64_t hidden = config.Int("d_model");
  ParameterTable table;
  // Both stacks and the head are tied to it, whatever the config says.
  table.Add("shared.weight", {config.Int("vocab_size"), hidden});
  for (const bool is_decoder : {false, true}) {
    const std::string side = is_decoder ? "decoder." : "encoder.";
    const int64_t layers = config.Int(is_decoder ? "num_decoder_layers" : "num_layers");
    for (int64_t i = 0; i < layers; ++i) {
      AddBlock(table, config, side + "block." + std::to_string(i) + ".", i == 0, is_decoder);
    }
    table.Add(side + "final_layer_norm.weight", {hidden});
  }
  return table;
}

}  // namespace headroom
