// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/deberta_v2/modeling_deberta_v2.py.
#include <algorithm>

#include "model/parameter_builders.h"

namespace headroom {
namespace {

void AddEmbeddings(ParameterTable& table, const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t width = config.Int("embedding_size");
  const int64_t positions = config.Int("max_position_embeddings");
  const int64_t token_types = config.Int("type_vocab_size");
  const std::string at = "deberta.embeddings.";
  table.Add(at + "word_embeddings.weight", {config.Int("vocab_size"), width});
  if (config.Bool("position_biased_input")) {
    table.Add(at + "position_embeddings.weight", {positions, width});
  }
  if (token_types > 0) table.Add(at + "token_type_embeddings.weight", {token_types, width});
  if (width != hidden) table.AddLinear(at + "embed_proj", width, hidden, false);
  table.AddLayerNorm(at + "LayerNorm", hidden);
  table.AddBuffer(at + "position_ids", {1, positions}, DType::kInt64);
}

void AddAttention(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t heads = config.Int("num_attention_heads");
  const int64_t all = heads * config.MaybeInt("attention_head_size").value_or(hidden / heads);
  for (const char* projection : {"query_proj", "key_proj", "value_proj"}) {
    table.AddLinear(at + projection, hidden, all);
  }
  if (!config.Bool("relative_attention") || config.Bool("share_att_key")) return;
  if (HasPositionTerm(config, "c2p")) table.AddLinear(at + "pos_key_proj", hidden, all);
  if (HasPositionTerm(config, "p2c")) table.AddLinear(at + "pos_query_proj", hidden, all);
}

void AddLayer(ParameterTable& table, const ModelConfig& config, const std::string& at) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t inner = config.Int("intermediate_size");
  AddAttention(table, config, at + "attention.self.");
  table.AddLinear(at + "attention.output.dense", hidden, hidden);
  table.AddLayerNorm(at + "attention.output.LayerNorm", hidden);
  table.AddLinear(at + "intermediate.dense", hidden, inner);
  table.AddLinear(at + "output.dense", inner, hidden);
  table.AddLayerNorm(at + "output.LayerNorm", hidden);
}

void AddEncoder(ParameterTable& table, const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const std::string at = "deberta.encoder.";
  for (int64_t layer = 0; layer < config.Int("num_hidden_layers"); ++layer) {
    AddLayer(table, config, at + "layer." + std::to_string(layer) + ".");
  }
  if (config.Bool("relative_attention")) {
    const int64_t buckets = config.Int("position_buckets");
    const int64_t given = config.Int("max_relative_positions");
    const int64_t most = given < 1 ? config.Int("max_position_embeddings") : given;
    table.Add(at + "rel_embeddings.weight", {2 * (buckets > 0 ? buckets : most), hidden});
  }
  if (config.String("norm_rel_ebd").find("layer_norm") != std::string::npos) {
    table.AddLayerNorm(at + "LayerNorm", hidden);
  }
  const int64_t kernel = config.Int("conv_kernel_size");
  if (kernel > 0) {
    table.Add(at + "conv.conv.weight", {hidden, hidden / config.Int("conv_groups"), kernel});
    table.Add(at + "conv.conv.bias", {hidden});
    table.AddLayerNorm(at + "conv.LayerNorm", hidden);
  }
}

void AddMaskedLmHead(ParameterTable& table, const ModelConfig& config) {
  const int64_t hidden = config.Int("hidden_size");
  const int64_t vocabulary = config.Int("vocab_size");
  if (!config.Bool("legacy")) {
    table.Add("lm_predictions.lm_head.bias", {vocabulary});
    table.AddLinear("lm_predictions.lm_head.dense", hidden, hidden);
    table.AddLayerNorm("lm_predictions.lm_head.LayerNorm", hidden);
    return;
  }
  const int64_t width = config.Int("embedding_size");
  table.Add("cls.predictions.bias", {vocabulary});
  table.AddLinear("cls.predictions.transform.dense", hidden, width);
  table.AddLayerNorm("cls.predictions.transform.LayerNorm", width);
  AddDecoder(table, config, "cls.predictions.decoder", width, true);
}

}  // namespace

bool HasPositionTerm(const ModelConfig& config, std::string_view term) {
  const std::vector<std::string> terms = config.Strings("pos_att_type");
  if (std::find(terms.begin(), terms.end(), term) != terms.end()) return true;
  // Older files write "p2c|c2p".
  const std::optional<std::string> text = config.MaybeString("pos_att_type");
  return text && text->find(term) != std::string::npos;
}

Result<ParameterTable> DebertaV2Parameters(const ModelConfig& config, Task task) {
  HEADROOM_RETURN_IF_ERROR(CheckDivisible(config, "hidden_size", "num_attention_heads"));
  const int64_t hidden = config.Int("hidden_size");
  ParameterTable table;
  AddEmbeddings(table, config);
  AddEncoder(table, config);
  switch (task) {
    case Task::kSequenceClassification: {
      const int64_t pooled = config.Int("pooler_hidden_size");
      table.AddLinear("pooler.dense", pooled, pooled);
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    }
    case Task::kTokenClassification:
      table.AddLinear("classifier", hidden, config.Int("num_labels"));
      return table;
    case Task::kMaskedLm:
      AddMaskedLmHead(table, config);
      return table;
    default:
      return UnsupportedTask(config, task);
  }
}

}  // namespace headroom
