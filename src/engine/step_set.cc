// SPDX-License-Identifier: Apache-2.0
#include "engine/step_set.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/initialise.h"

namespace headroom::engine {
namespace {

// A chunk of logits is worth computing with from about this many rows on; a multiple of kLossRows
// (cpu/cpu_ops.h), so that chunking changes no bit.
constexpr int64_t kChunkRows = 512;
constexpr int64_t kCudaChunkRows = 4096;

void Fill(const ModelGraph& model, const Executor& executor, const char* name,
          const std::vector<int32_t>& values, int32_t missing) {
  const graph::TensorId id = model.graph.Find(graph::Role::kInput, name);
  if (id == graph::kNoTensor) return;
  const TensorView& view = executor.View(id);
  const auto count = static_cast<size_t>(view.shape.NumElements());
  HEADROOM_CHECK(values.size() <= count, "a batch larger than its graph");
  auto* to = view.As<int32_t>();
  std::copy(values.begin(), values.end(), to);
  std::fill(to + values.size(), to + count, missing);
}

}  // namespace

NativeOptions NativeOptionsOf(const TrainOptions& options, int64_t sequence,
                              int64_t target_sequence) {
  NativeOptions native;
  native.model.task = options.task;
  native.model.rows = {.batch = options.per_device_train_batch_size, .sequence = sequence};
  native.model.target_sequence = target_sequence;
  native.model.label_smoothing = static_cast<float>(options.label_smoothing_factor);
  native.model.loss_chunk_rows = options.loss_chunk_rows > 0 ? options.loss_chunk_rows
                                 : options.cuda              ? kCudaChunkRows
                                                             : kChunkRows;
  native.precision = options.precision;
  native.lean = options.lean;
  native.recompute = options.recompute;
  native.optimizer = options.optimizer;
  native.optimizer.weight_decay = static_cast<float>(options.weight_decay);
  native.gradient_accumulation_steps = options.gradient_accumulation_steps;
  native.cuda = options.cuda;
  return native;
}

Result<StepSet> StepSet::Plan(const ModelConfig& config, const TrainOptions& options,
                              const std::vector<BatchShape>& shapes, bool evaluates) {
  HEADROOM_CHECK(!shapes.empty(), "batches of no shape");
  StepSet set;
  set.shapes_ = shapes;
  set.train_.resize(shapes.size());
  const int64_t longest = shapes.back().sequence;
  const auto native = [&](const BatchShape& shape) {
    NativeOptions result = NativeOptionsOf(options, shape.sequence, shape.decoder_sequence);
    result.model.max_sequence = longest;
    return result;
  };
  HEADROOM_ASSIGN_OR_RETURN(NativeStep largest, PlanTrainingStep(config, native(shapes.back())));
  set.train_.back() = std::make_unique<NativeStep>(std::move(largest));
  const NativeStep& owner = set.largest();
  for (size_t i = 0; i + 1 < shapes.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(NativeStep step,
                              PlanTrainingStepBeside(config, native(shapes[i]), owner));
    set.train_[i] = std::make_unique<NativeStep>(std::move(step));
  }
  for (size_t i = 0; evaluates && i < shapes.size(); ++i) {
    HEADROOM_ASSIGN_OR_RETURN(NativeStep step, PlanForwardBeside(config, native(shapes[i]), owner));
    set.eval_.push_back(std::make_unique<NativeStep>(std::move(step)));
  }
  if (options.samples > 0) {
    NativeOptions decode = native(shapes.back());
    decode.model.head = Head::kNextToken;
    decode.model.rows.batch = options.samples;
    HEADROOM_ASSIGN_OR_RETURN(NativeStep step, PlanForwardBeside(config, decode, owner));
    set.decode_.push_back(std::make_unique<NativeStep>(std::move(step)));
  }
  return set;
}

Bytes StepSet::arena_size() const {
  Bytes size;
  for (const auto* steps : {&train_, &eval_, &decode_}) {
    for (const auto& step : *steps) size = std::max(size, step->plan.size);
  }
  return size;
}

Status StepSet::Allocate(Device* device) {
  HEADROOM_ASSIGN_OR_RETURN(arena_, HostArena::Create(arena_size()));
  const auto executors = [&](const std::vector<std::unique_ptr<NativeStep>>& steps,
                             std::vector<std::unique_ptr<Executor>>& result) {
    for (const auto& step : steps) {
      result.push_back(std::make_unique<Executor>(step->graph(), step->plan, arena_.bytes()));
    }
  };
  executors(train_, train_executors_);
  executors(eval_, eval_executors_);
  executors(decode_, decode_executors_);
  FillConstants(model(), executor());
  return device == nullptr ? Status() : AllocateOn(*device);
}

Status StepSet::AllocateOn(Device& device) {
  HEADROOM_RETURN_IF_ERROR(device.Allocate(arena_size()));
  for (const auto* steps : {&train_, &eval_}) {
    for (const auto& step : *steps) {
      on_device_[&step->graph()] = device.NewExecutor(step->graph(), step->plan);
      on_device_[&step->graph()]->Tune();
    }
  }
  return device.Synchronize();
}

DeviceExecutor& StepSet::OnDevice(const Executor& executor) const {
  return *on_device_.at(&executor.graph());
}

std::vector<const graph::Graph*> StepSet::graphs() const {
  std::vector<const graph::Graph*> graphs;
  for (const auto* steps : {&train_, &eval_}) {
    for (const auto& step : *steps) graphs.push_back(&step->graph());
  }
  return graphs;
}

size_t StepSet::Find(const Batch& batch) const {
  const BatchShape shape{batch.sequence, batch.decoder_sequence};
  const auto found = std::find(shapes_.begin(), shapes_.end(), shape);
  HEADROOM_CHECK(found != shapes_.end(), "a batch of a shape that is not planned");
  return static_cast<size_t>(found - shapes_.begin());
}

void FillInputs(const ModelGraph& model, const Executor& executor, const Batch& batch,
                int32_t pad_id) {
  Fill(model, executor, "input_ids", batch.ids, pad_id);
  Fill(model, executor, "token_type_ids", batch.type_ids, 0);
  Fill(model, executor, "lengths", batch.lengths, 1);
  Fill(model, executor, "labels", batch.labels, kIgnoredLabel);
  Fill(model, executor, "decoder_input_ids", batch.decoder_ids, pad_id);
  Fill(model, executor, "decoder_lengths", batch.decoder_lengths, 1);
}

void UploadInputs(const Executor& executor, DeviceExecutor& device) {
  for (size_t i = 0; i < executor.graph().tensors().size(); ++i) {
    const auto id = static_cast<graph::TensorId>(i);
    if (executor.graph().tensor(id).role != graph::Role::kInput) continue;
    device.Upload(id, executor.View(id).data);
  }
}

}  // namespace headroom::engine
