// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bert/modeling_bert.py.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddEmbeddings(ParameterTable& table, const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t positions = config.Int("max_position_embeddings");
  const std::string at = "bert.embeddings.";
  table.Add(at + "word_embeddings.weight", {config.Int("vocab_size"), hidden});
  table.Add(at + "position_embeddings.weight", {positions, hidden});
  table.Add(at + "token_type_embeddings.weight", {config.Int("type_vocab_size"), hidden});
  table.AddLayerNorm(at + "LayerNorm", hidden);
  table.AddBuffer(at + "position_ids", {1, positions}, DType::kInt64);
  table.AddBuffer(at + "token_type_ids", {1, positions}, DType::kInt64);
}

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  for (const char* projection : {"query", "key", "value"}) {
    table.AddLinear(at + "attention.self." + projection, hidden, hidden);
  }
  table.AddLinear(at + "attention.output.dense", hidden, hidden);
  table.AddLayerNorm(at + "attention.output.LayerNorm", hidden);
  table.AddLinear(at + "intermediate.dense", hidden, inner);
  table.AddLinear(at + "output.dense", inner, hidden);
  table.AddLayerNorm(at + "output.LayerNorm", hidden);
}

void AddMaskedLmHead(ParameterTable& table, const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t vocabulary = config.Int("vocab_size");
  // decoder.weight is the word embedding and decoder.bias this bias, unless they are untied.
  table.Add("cls.predictions.bias", {vocabulary});
  table.AddLinear("cls.predictions.transform.dense", hidden, hidden);
  table.AddLayerNorm("cls.predictions.transform.LayerNorm", hidden);
  if (!config.MaybeBool("tie_word_embeddings").value_or(true)) {
    table.Add("cls.predictions.decoder.weight", {vocabulary, hidden});
  }
}

}  // namespace

Result<ParameterTable> BertParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  AddEmbeddings(table, config);
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, "bert.encoder.layer." + std::to_string(layer) + ".");
  }
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("bert.pooler.dense", hidden, hidden);
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm: AddMaskedLmHead(table, config); return table;
    default: return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
