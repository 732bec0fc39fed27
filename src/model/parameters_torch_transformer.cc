// SPDX-License-Identifier: Apache-2.0
//
// torch.nn.Transformer of PyTorch 2.11.0 between two embeddings, learned positions and a generator.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddAttention(ParameterTable& table, const std::string& at, int64_t hidden) {
  table.Add(at + ".in_proj_weight", {3 * hidden, hidden});
  table.Add(at + ".in_proj_bias", {3 * hidden});
  table.AddLinear(at + ".out_proj", hidden, hidden);
}

void AddStack(ParameterTable& table, const ModelConfig& config, const std::string& side) {
  const int64_t hidden = config.Int("d_model");
  const int64_t inner = config.Int("dim_feedforward");
  const bool is_decoder = side == "decoder";
  for (int64_t layer = 0; layer < config.Int("num_" + side + "_layers"); ++layer) {
    const std::string at = "core." + side + ".layers." + std::to_string(layer) + ".";
    AddAttention(table, at + "self_attn", hidden);
    if (is_decoder) AddAttention(table, at + "multihead_attn", hidden);
    table.AddLinear(at + "linear1", hidden, inner);
    table.AddLinear(at + "linear2", inner, hidden);
    table.AddLayerNorm(at + "norm1", hidden);
    table.AddLayerNorm(at + "norm2", hidden);
    if (is_decoder) table.AddLayerNorm(at + "norm3", hidden);
  }
  table.AddLayerNorm("core." + side + ".norm", hidden);
}

}  // namespace

Result<ParameterTable> TorchTransformerParameters(const ModelConfig& config, Task task) {
  if (task != Task::kSeq2SeqLm) return UnsupportedTask(config, task);
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "d_model", "nhead"));
  const int64_t hidden = config.Int("d_model");
  const int64_t vocabulary = config.Int("vocab_size");
  ParameterTable table;
  table.Add("src.weight", {vocabulary, hidden});
  table.Add("tgt.weight", {vocabulary, hidden});
  table.Add("pos.weight", {config.Int("max_len"), hidden});
  AddStack(table, config, "encoder");
  AddStack(table, config, "decoder");
  table.AddLinear("out", hidden, vocabulary);
  return table;
}

}  // namespace headroom
