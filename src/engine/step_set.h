// SPDX-License-Identifier: Apache-2.0
//
// StepSet: the plans of a run whose batches have several lengths, in one arena.
//
//   shape 512   train ─┐ weights, gradients and states lie in the same bytes for all;
//   shape 256   train  ├ activations above them, as high as the highest plan needs
//   shape 512   eval  ─┘
//
// The arena's size is known before anything is allocated. The largest training plan decides it, or
// an evaluation that needs more.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "engine/data/batches.h"
#include "engine/device.h"
#include "engine/executor.h"
#include "engine/native_step.h"
#include "engine/train_options.h"

namespace headroom::engine {

class StepSet {
 public:
  // Plans training for each shape, and evaluation as well when `evaluates`. REQUIRES: shapes are
  // ascending and not none.
  // With options.samples it plans decoding so many rows of the largest shape, too.
  static Result<StepSet> Plan(const ModelConfig& config, const TrainOptions& options,
                              const std::vector<BatchShape>& shapes, bool evaluates);

  // The plan of the largest shape.
  const NativeStep& largest() const { return *train_.back(); }
  Bytes arena_size() const;

  // Allocates the arena and makes executors; constants are filled. With a device its arena, too:
  // the host's is then its mirror. REQUIRES: the device outlives it.
  Status Allocate(Device* device = nullptr);
  // What runs the same graph on the device. REQUIRES: there is one, and the graph is not
  // decode()'s.
  DeviceExecutor& OnDevice(const Executor& executor) const;
  std::span<std::byte> arena() const { return arena_.bytes(); }
  // Those that run on a device: training and evaluation.
  std::vector<const graph::Graph*> graphs() const;

  // Of a batch's shape. REQUIRES: Allocate() succeeded, and the shape is one of the plan's.
  const Executor& train(const Batch& batch) const { return *train_executors_[Find(batch)]; }
  const ModelGraph& train_model(const Batch& batch) const { return train_[Find(batch)]->model; }
  const Executor& eval(const Batch& batch) const { return *eval_executors_[Find(batch)]; }
  const ModelGraph& eval_model(const Batch& batch) const { return eval_[Find(batch)]->model; }
  // REQUIRES: options.samples > 0.
  const Executor& decode() const { return *decode_executors_.front(); }
  const ModelGraph& decode_model() const { return decode_.front()->model; }
  // Of the largest shape: for weights and optimizer.
  const Executor& executor() const { return *train_executors_.back(); }
  const ModelGraph& model() const { return train_.back()->model; }

 private:
  Status AllocateOn(Device& device);
  size_t Find(const Batch& batch) const;

  std::vector<BatchShape> shapes_;
  std::vector<std::unique_ptr<NativeStep>> train_;
  std::vector<std::unique_ptr<NativeStep>> eval_;
  std::vector<std::unique_ptr<NativeStep>> decode_;
  HostArena arena_;
  std::vector<std::unique_ptr<Executor>> train_executors_;
  std::vector<std::unique_ptr<Executor>> eval_executors_;
  std::vector<std::unique_ptr<Executor>> decode_executors_;
  std::map<const graph::Graph*, std::unique_ptr<DeviceExecutor>> on_device_;
};

// Copies a batch into a graph's inputs; rows that the batch lacks are padding without targets.
void FillInputs(const ModelGraph& model, const Executor& executor, const Batch& batch,
                int32_t pad_id);

// Copies a graph's inputs to the device.
void UploadInputs(const Executor& executor, DeviceExecutor& device);

}  // namespace headroom::engine
