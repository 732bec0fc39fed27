// SPDX-License-Identifier: Apache-2.0
//
// ModelGraph: the forward pass of a Hugging Face model as a graph of the native engine.
//
//   HEADROOM_ASSIGN_OR_RETURN(ModelGraph model, BuildModelGraph(config, {.task = Task::kCausalLm,
//       .rows = {.batch = 8, .sequence = 1024}}));
//   model.graph.Find(graph::Role::kInput, "input_ids");      // int32 [8192]
//
// Parameters have the names and shapes of transformers 5.17, so that its checkpoints load. Inputs
// are int32: "input_ids" and "labels" [N], "token_type_ids" [N], "lengths" [B] (tokens of each
// sequence that are not padding, which stands to the right), for seq2seq "decoder_input_ids" [M];
// the labels of a sequence classifier are [B].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "graph/builder.h"
#include "graph/graph.h"
#include "model/config.h"
#include "model/recipe.h"

namespace headroom::engine {

// What the forward pass ends in.
enum class Head : uint8_t {
  kLoss,       // a sum over targets; of a classifier, its logits are kept
  kNextToken,  // logits [B, V] of the last token of each sequence, kept
  kHidden,     // the last hidden state [N, C], kept
};

struct ModelGraphOptions {
  Task task = Task::kCausalLm;
  graph::Rows rows;
  int64_t target_sequence = 0;  // of a decoder behind an encoder; 0: rows.sequence
  Head head = Head::kLoss;
  bool dropout = true;          // as the config says; evaluation has none
  bool padding = true;          // sequences have lengths; without, all are full
  int64_t loss_chunk_rows = 0;  // logits of so many rows at a time; 0: of all
  float label_smoothing = 0;
  // Rows of tables of constants; graphs that share an arena agree on it. 0: rows.sequence.
  int64_t max_sequence = 0;
};

struct ModelGraph {
  graph::Graph graph;
  graph::TensorId loss = graph::kNoTensor;
  graph::TensorId logits = graph::kNoTensor;
  graph::TensorId hidden = graph::kNoTensor;
  // Buffers and what they hold.
  std::vector<std::pair<graph::TensorId, std::vector<float>>> constants;
  // Names under which transformers stores a constant as well (Pegasus' sines).
  std::vector<std::pair<std::string, graph::TensorId>> stored_constants;
  // Of the base model, as checkpoints of it alone leave it out: "bert.", "transformer.", "model.".
  std::string base_prefix;
  // Names under which a tied parameter may stand as well ("lm_head.weight").
  std::vector<std::pair<std::string, std::string>> tied;  // other name, name
};

// Fails (kUnsupported) on a model type or task that the engine does not have, naming those it has,
// and on features of a config that it does not compute (a sliding window below the sequence).
Result<ModelGraph> BuildModelGraph(const ModelConfig& config, const ModelGraphOptions& options);

// model_types that BuildModelGraph knows, sorted.
std::vector<std::string_view> NativeModelTypes();

}  // namespace headroom::engine
