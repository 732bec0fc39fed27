// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/albert/modeling_albert.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  table.AddLayerNorm(at + "full_layer_layer_norm", hidden);
  for (const char* projection : {"query", "key", "value", "dense"}) {
    table.AddLinear(at + "attention." + projection, hidden, hidden);
  }
  table.AddLayerNorm(at + "attention.LayerNorm", hidden);
  table.AddLinear(at + "ffn", hidden, inner);
  table.AddLinear(at + "ffn_output", inner, hidden);
}

void AddGroups(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  for (int64_t group = 0; group < config.Int("num_hidden_groups"); ++group) {
    for (int64_t layer = 0; layer < config.Int("inner_group_num"); ++layer) {
      AddLayer(table, config,
               at + std::to_string(group) + ".albert_layers." + std::to_string(layer) + ".");
    }
  }
}

}  // namespace

Result<ParameterTable> AlbertParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const int64_t width = config.Int("embedding_size");
  ParameterTable table;
  AddBertEmbeddings(table, config, "albert.embeddings.", width);
  table.AddLinear("albert.encoder.embedding_hidden_mapping_in", width, hidden);
  AddGroups(table, config, "albert.encoder.albert_layer_groups.");
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("albert.pooler", hidden, hidden);
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      table.Add("predictions.bias", {config.Int("vocab_size")});
      table.AddLayerNorm("predictions.LayerNorm", width);
      table.AddLinear("predictions.dense", hidden, width);
      AddDecoder(table, config, "predictions.decoder", width, true);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
