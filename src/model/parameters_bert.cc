// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: models/bert/modeling_bert.py and its close relatives, roberta (with
// xlm-roberta and camembert, which are copies of it) and electra.
#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddWords(ParameterTable& table, const ModelConfig& config, const std::string& at,
              int64_t width) {
  table.Add(at + "word_embeddings.weight", {config.Int("vocab_size"), width});
}

void AddPositions(ParameterTable& table, const ModelConfig& config, const std::string& at,
                  int64_t width) {
  table.Add(at + "position_embeddings.weight", {config.Int("max_position_embeddings"), width});
}

void AddTokenTypes(ParameterTable& table, const ModelConfig& config, const std::string& at,
                   int64_t width) {
  table.Add(at + "token_type_embeddings.weight", {config.Int("type_vocab_size"), width});
}

void AddIndexBuffers(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t positions = config.Int("max_position_embeddings");
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

void AddLayers(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, at + std::to_string(layer) + ".");
  }
}

}  // namespace

void AddBertEmbeddings(ParameterTable& table, const ModelConfig& config, const std::string& at,
                       int64_t width) {
  AddWords(table, config, at, width);
  AddPositions(table, config, at, width);
  AddTokenTypes(table, config, at, width);
  table.AddLayerNorm(at + "LayerNorm", width);
  AddIndexBuffers(table, config, at);
}

void AddDecoder(ParameterTable& table, const ModelConfig& config, const std::string& name,
                int64_t width, bool tied_bias) {
  const int64_t vocabulary = config.Int("vocab_size");
  const bool tied = config.MaybeBool("tie_word_embeddings").value_or(true);
  if (!tied) table.Add(name + ".weight", {vocabulary, width});
  if (!tied || !tied_bias) table.Add(name + ".bias", {vocabulary});
}

Result<ParameterTable> BertParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  AddBertEmbeddings(table, config, "bert.embeddings.", hidden);
  AddLayers(table, config, "bert.encoder.layer.");
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("bert.pooler.dense", hidden, hidden);
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      table.Add("cls.predictions.bias", {config.Int("vocab_size")});
      table.AddLinear("cls.predictions.transform.dense", hidden, hidden);
      table.AddLayerNorm("cls.predictions.transform.LayerNorm", hidden);
      AddDecoder(table, config, "cls.predictions.decoder", hidden, true);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

Result<ParameterTable> RobertaParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const std::string embeddings = "roberta.embeddings.";
  ParameterTable table;
  AddWords(table, config, embeddings, hidden);
  AddTokenTypes(table, config, embeddings, hidden);
  table.AddLayerNorm(embeddings + "LayerNorm", hidden);
  AddPositions(table, config, embeddings, hidden);
  AddIndexBuffers(table, config, embeddings);
  AddLayers(table, config, "roberta.encoder.layer.");
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("classifier.dense", hidden, hidden);
      table.AddLinear("classifier.out_proj", hidden, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      table.Add("lm_head.bias", {config.Int("vocab_size")});
      table.AddLinear("lm_head.dense", hidden, hidden);
      table.AddLayerNorm("lm_head.layer_norm", hidden);
      AddDecoder(table, config, "lm_head.decoder", hidden, true);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

Result<ParameterTable> ElectraParameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  const int64_t width = config.Int("embedding_size");
  ParameterTable table;
  AddBertEmbeddings(table, config, "electra.embeddings.", width);
  if (width != hidden) table.AddLinear("electra.embeddings_project", width, hidden);
  AddLayers(table, config, "electra.encoder.layer.");
  switch (task) {
    case Task::kSequenceClassification:
      table.AddLinear("classifier.dense", hidden, hidden);
      table.AddLinear("classifier.out_proj", hidden, config.Int("num_labels"));
      return table;
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      table.AddLayerNorm("generator_predictions.LayerNorm", width);
      table.AddLinear("generator_predictions.dense", hidden, width);
      AddDecoder(table, config, "generator_lm_head", width, false);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
