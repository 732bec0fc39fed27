// SPDX-License-Identifier: Apache-2.0
//
// BatchStream: the batches of a run, epoch after epoch, in an order that follows from the seed.
//
// A batch is padded to one of a few shapes, so that one plan per shape serves the whole run:
//
//   longest example 100, multiple 8, 4 buckets:    32, 56, 80, 104
//   a batch whose longest example has 40 tokens:   padded to 56
//
// What a batch holds follows from (seed, epoch, index) alone. A Position is therefore all that a
// checkpoint needs: after Seek() the stream hands out the same batches, bit for bit.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/dataset.h"
#include "model/recipe.h"

namespace headroom::engine {

// A batch of the stream, by number.
struct Position {
  int64_t epoch = 0;
  int64_t batch = 0;

  bool operator==(const Position&) const = default;
};

struct Batch {
  Position position;
  int64_t rows = 0;              // examples: fewer than the batch size at an epoch's end
  int64_t sequence = 0;          // tokens of a row, padding included
  int64_t decoder_sequence = 0;  // 0 without a decoder
  std::vector<int32_t> ids;      // [rows, sequence], padded behind
  std::vector<int32_t> type_ids;
  std::vector<int32_t> lengths;  // [rows]: tokens that are no padding
  // [rows] classes, or one per token: [rows, sequence], with a decoder [rows, decoder_sequence].
  // Label i belongs to the output at i: a causal model's are already shifted by one.
  std::vector<int32_t> labels;
  std::vector<int32_t> decoder_ids;  // [rows, decoder_sequence]
  std::vector<int32_t> decoder_lengths;
  int64_t targets = 0;  // labels other than kIgnoredLabel
};

struct BatchShape {
  int64_t sequence = 0;
  int64_t decoder_sequence = 0;

  bool operator==(const BatchShape&) const = default;
};

// BERT's masking: of `probability` of the tokens (one at least) the model predicts what they were;
// 80 % of them become `mask_id`, 10 % a random token, 10 % stay. Chosen anew in every epoch.
struct Masking {
  float probability = 0;  // 0: labels are used as they are
  int32_t mask_id = 0;
  int32_t vocabulary = 0;
  std::vector<int32_t> special_ids = {};  // never chosen
};

struct BatchOptions {
  Task task = Task::kSequenceClassification;
  int64_t batch_size = 8;
  uint64_t seed = 42;
  bool shuffle = true;
  // Examples of like length share a batch, as Trainer's group_by_length has it. Needs `shuffle`.
  bool group_by_length = false;
  int buckets = 4;       // 1: everything is padded to the longest
  int64_t multiple = 8;  // that shapes are rounded up to
  // The largest shape; 0: that of the longest example. REQUIRES: no example is longer.
  int64_t sequence = 0;
  int64_t decoder_sequence = 0;
  int32_t pad_id = 0;
  Masking masking = {};
};

class BatchStream {
 public:
  // REQUIRES: `dataset` outlives this and holds an example; counts are positive.
  BatchStream(const Dataset& dataset, BatchOptions options);

  // The shapes that batches may have, ascending.
  const std::vector<BatchShape>& shapes() const { return shapes_; }
  int64_t batches_per_epoch() const;
  // Of the batch that Next() makes.
  Position position() const { return position_; }
  // The one behind `position`.
  Position After(Position position) const;

  // Makes the next batch in `batch`, whose memory it uses again.
  void Next(Batch& batch);
  // REQUIRES: a position of this stream.
  void Seek(Position position);

 private:
  void OrderEpoch(int64_t epoch);
  void GroupByLength();
  const BatchShape& ShapeFor(const BatchShape& longest) const;
  void Fill(Batch& batch, int64_t row, int64_t index) const;
  void Mask(Batch& batch, int64_t row, int64_t index) const;

  const Dataset* dataset_;
  BatchOptions options_;
  std::vector<BatchShape> shapes_;
  Position position_;
  int64_t ordered_epoch_ = -1;
  std::vector<int64_t> order_;  // of `ordered_epoch_`
};

}  // namespace headroom::engine
