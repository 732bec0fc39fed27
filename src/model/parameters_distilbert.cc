// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/distilbert/modeling_distilbert.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddEmbeddings(ParameterTable& table, const ModelConfig& config) {
  const int64_t dim = config.Int("dim");
  const int64_t positions = config.Int("max_position_embeddings");
  const std::string at = "distilbert.embeddings.";
  table.Add(at + "word_embeddings.weight", {config.Int("vocab_size"), dim});
  table.Add(at + "position_embeddings.weight", {positions, dim});
  table.AddLayerNorm(at + "LayerNorm", dim);
  table.AddBuffer(at + "position_ids", {1, positions}, DType::kInt64);
}

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t dim = config.Int("dim");
  const int64_t inner = config.Int("hidden_dim");
  for (const char* projection : {"q_lin", "k_lin", "v_lin", "out_lin"}) {
    table.AddLinear(at + "attention." + projection, dim, dim);
  }
  table.AddLayerNorm(at + "sa_layer_norm", dim);
  table.AddLinear(at + "ffn.lin1", dim, inner);
  table.AddLinear(at + "ffn.lin2", inner, dim);
  table.AddLayerNorm(at + "output_layer_norm", dim);
}

}  // namespace

Result<ParameterTable> DistilBertParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "dim", "n_heads"));
  const int64_t dim = config.Int("dim");
  ParameterTable table;
  AddEmbeddings(table, config);
  for (int64_t layer = 0; layer < config.Int("n_layers"); ++layer) {
    AddLayer(table, config, "distilbert.transformer.layer." + std::to_string(layer) + ".");
  }
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("pre_classifier", dim, dim);
      table.AddLinear("classifier", dim, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", dim, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      table.AddLinear("vocab_transform", dim, dim);
      table.AddLayerNorm("vocab_layer_norm", dim);
      AddDecoder(table, config, "vocab_projector", dim, false);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
