// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/modernbert/modeling_modernbert.py.
#include <set>

#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddLayer(ParameterTable& table, const ModelConfig& config, int64_t layer) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  const bool norm_bias = config.Bool("norm_bias");
  const bool attention_bias = config.Bool("attention_bias");
  const bool mlp_bias = config.Bool("mlp_bias");
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  if (layer > 0) table.AddLayerNorm(at + "attn_norm", hidden, norm_bias);
  table.AddLinear(at + "attn.Wqkv", hidden, 3 * hidden, attention_bias);
  table.AddLinear(at + "attn.Wo", hidden, hidden, attention_bias);
  table.AddLayerNorm(at + "mlp_norm", hidden, norm_bias);
  table.AddLinear(at + "mlp.Wi", hidden, 2 * inner, mlp_bias);
  table.AddLinear(at + "mlp.Wo", inner, hidden, mlp_bias);
}

// Two buffers for each kind of attention, in the order of their names.
void AddRotary(ParameterTable& table, const ModelConfig& config) {
  const int64_t head_dim =
      config.MaybeInt("head_dim")
          .value_or(config.Int("hidden_size") / config.Int("num_attention_heads"));
  std::set<std::string> types;
  for (const std::string& type : config.Strings("layer_types")) types.insert(type);
  for (const std::string& type : types) {
    const std::string at = "model.rotary_emb." + type;
    table.AddBuffer(at + "_inv_freq", {head_dim / 2}, DType::kFloat32);
    table.AddBuffer(at + "_original_inv_freq", {head_dim / 2}, DType::kFloat32);
  }
}

Status AddHead(ParameterTable& table, const ModelConfig& config, Task task) {
  const int64_t hidden = config.Int("hidden_size");
  const bool masked_lm = task == Task::kMaskedLm;
  if (!masked_lm && task != Task::kSequenceClassification && task != Task::kTokenClassification) {
    return UnsupportedTask(config, task);
  }
  table.AddLinear("head.dense", hidden, hidden, config.Bool("classifier_bias"));
  table.AddLayerNorm("head.norm", hidden, config.Bool("norm_bias"));
  if (!masked_lm) {
    table.AddLinear("classifier", hidden, config.Int("num_labels"));
    return {};
  }
  const int64_t vocabulary = config.Int("vocab_size");
  // decoder.weight is the word embedding unless they are untied.
  if (!config.MaybeBool("tie_word_embeddings").value_or(true)) {
    table.Add("decoder.weight", {vocabulary, hidden});
  }
  if (config.Bool("decoder_bias")) table.Add("decoder.bias", {vocabulary});
  return {};
}

}  // namespace

Result<ParameterTable> ModernBertParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  table.Add("model.embeddings.tok_embeddings.weight", {config.Int("vocab_size"), hidden});
  table.AddLayerNorm("model.embeddings.norm", hidden, config.Bool("norm_bias"));
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, layer);
  }
  table.AddLayerNorm("model.final_norm", hidden, config.Bool("norm_bias"));
  AddRotary(table, config);
  HEADROOM_RETURN_IF_ERROR(AddHead(table, config, task));
  return table;
}

}  // namespace headroom
