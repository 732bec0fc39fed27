// SPDX-License-Identifier: Apache-2.0
//
// Model: an architecture's forward, as its Hugging Face modelling file writes it.
//
// One file per architecture in predict/models/. A forward is written with the Python's own
// lifetimes: parameters are const references (the caller's frame holds them), locals die where the
// Python rebinds them, and an expression that Python would free step by step is written step by
// step.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/recipe.h"
#include "predict/checkpoint.h"
#include "predict/modules.h"
#include "predict/tensor.h"

namespace headroom::predict {

class KeyValueCache;

// What the data loader hands to model(**inputs); undefined where the task has no such input.
struct Batch {
  Tensor input_ids;           // [batch, sequence] int64
  Tensor attention_mask;      // [batch, sequence] int64
  Tensor pixel_values;        // [batch, channels, height, width] fp32
  Tensor input_features;      // [batch, mel bins, frames] fp32
  Tensor labels;              // [batch] or [batch, sequence] int64
  Tensor num_items_in_batch;  // scalar int64: Trainer passes it to models that accept it

  // ---- Of generation ----

  Tensor position_ids;                       // [batch, sequence] int64; undefined: the model counts
  KeyValueCache* past_key_values = nullptr;  // grows by the sequence; null: no cache
  int64_t logits_to_keep = 0;                // of the last positions alone; 0: of all
  Tensor encoder_states;                     // seq2seq: what Encode returned
};

// The tensors of a ModelOutput, in its order.
struct ModelOutput {
  Tensor loss;
  Tensor logits;
  std::vector<Tensor> others;  // encoder_last_hidden_state and the like
  // Keys and values of past_key_values: kept as they are, as nothing converts a cache.
  std::vector<Tensor> cache = {};
};

// What a model is built from.
struct ModelArguments {
  const ModelConfig& config;
  const Recipe& recipe;
  const Weights& weights;
  AttnImplementation attn;  // resolved: never kAuto
  CheckpointKind checkpoint;
};

class Model {
 public:
  virtual ~Model() = default;
  // Without labels it computes no loss.
  virtual ModelOutput Forward(const Batch& batch) = 0;
  // model.get_encoder()(input_ids, attention_mask) of encoder-decoders; undefined elsewhere.
  virtual Tensor Encode(const Batch&) { return {}; }
};

// What the drivers must know about a class before it is built.
struct Architecture {
  std::string_view model_type;
  // The class has SDPA (_supports_sdpa); else it runs eager.
  bool supports_sdpa = true;
  // forward(**kwargs) takes num_items_in_batch for this task (Trainer.model_accepts_loss_kwargs).
  bool (*accepts_loss_kwargs)(Task task);
  // Its loss shifts the labels by one (Trainer._loss_shifts_labels).
  bool (*loss_shifts_labels)(Task task);
  Result<std::unique_ptr<Model>> (*make)(const ModelArguments& arguments);
  // Its forward writes keys and values into a cache, so that it can generate with one.
  bool caches = false;
  // forward(position_ids): generate counts the positions itself.
  bool takes_position_ids = true;
  // Rows of a learned position table that no token can have (RoBERTa counts from padding_idx + 1).
  int64_t (*reserved_positions)(const ModelConfig& config) = [](const ModelConfig&) -> int64_t {
    return 0;
  };
};

// Null when the type is not modelled.
const Architecture* FindArchitecture(std::string_view model_type);
std::vector<std::string_view> ArchitectureNames();

}  // namespace headroom::predict
