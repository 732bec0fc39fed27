// SPDX-License-Identifier: Apache-2.0
//
// Runs that differ in how, not in what they compute: by threads, by arena, by micro-batches, by
// chunks of the loss.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/thread_pool.h"
#include "engine/tiny_models.h"

namespace headroom::engine {
namespace {

using graph::Recompute;

// Large enough that ops are shared among threads, and have several tiles.
TinyModel Larger(TinyModel model) {
  nlohmann::json config = nlohmann::json::parse(model.config);
  for (const char* key : {"hidden_size", "n_embd", "d_model"}) {
    if (config.contains(key)) config[key] = 128;
  }
  for (const char* key : {"intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim"}) {
    if (config.contains(key)) config[key] = 200;
  }
  for (const char* key : {"max_position_embeddings", "n_positions"}) {
    if (config.contains(key)) config[key] = 160;
  }
  config["vocab_size"] = 509;
  model.config = config.dump();
  return model;
}

NativeOptions LargerOptions(const TinyModel& model) {
  NativeOptions options = TinyOptions(model);
  options.model.rows = {.batch = 4, .sequence = 150};
  options.model.target_sequence = model.task == Task::kSeq2SeqLm ? 70 : 0;
  return options;
}

TEST(SameBits, OnOneThreadAndOnTwo) {
  for (const TinyModel& tiny : TinyModels()) {
    const TinyModel model = Larger(tiny);
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      SCOPED_TRACE(model.name + " " + std::string(Name(precision)));
      NativeOptions options = LargerOptions(model);
      options.precision = precision;
      TinyRun one(model, options);
      TinyRun two(model, options);
      cpu::ThreadPool::Get().SetThreads(1);
      const float loss = one.ForwardBackward();
      one.Update(1e-3F);
      cpu::ThreadPool::Get().SetThreads(2);
      EXPECT_EQ(two.ForwardBackward(), loss);
      two.Update(1e-3F);
      EXPECT_EQ(two.Gradients(), one.Gradients());
      EXPECT_EQ(two.Weights(), one.Weights());
    }
  }
}

// An executor over bytes of its own that starts from the tensors of another with the same graph.
struct Copy {
  Copy(const TinyRun& run, const graph::MemoryPlan& plan)
      : arena(*HostArena::Create(plan.size)), executor(run.step().graph(), plan, arena.bytes()) {
    for (size_t i = 0; i < run.step().graph().tensors().size(); ++i) {
      const graph::Tensor& tensor = run.step().graph().tensors()[i];
      const bool filled = IsPersistent(tensor.role) || tensor.role == graph::Role::kInput;
      if (!filled || tensor.base) continue;
      const auto id = static_cast<graph::TensorId>(i);
      std::memcpy(executor.View(id).data, run.executor().View(id).data,
                  static_cast<size_t>(SizeOf(tensor).count()));
    }
  }

  HostArena arena;
  Executor executor;
};

TEST(SameBits, InAnArenaAndInSeparateBuffers) {
  for (const TinyModel& model : TinyModels()) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
      for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
        SCOPED_TRACE(model.name + " recompute " + std::string(Name(recompute)));
        NativeOptions options = TinyOptions(model);
        options.recompute = recompute;
        options.precision = precision;
        TinyRun run(model, options);
        const graph::Graph& graph = run.step().graph();
        const Copy copy(run, SeparateBuffers(graph));
        StepScalars scalars = run.scalars();
        scalars.learning_rate = 1e-3F;
        run.ForwardBackward();
        run.Update(1e-3F);
        for (const auto phase :
             {graph::Phase::kForward, graph::Phase::kBackward, graph::Phase::kOptimizer}) {
          copy.executor.Run(phase, scalars);
        }
        for (size_t i = 0; i < graph.tensors().size(); ++i) {
          const graph::Tensor& tensor = graph.tensors()[i];
          if (tensor.base || !IsPersistent(tensor.role)) continue;
          const auto id = static_cast<graph::TensorId>(i);
          EXPECT_EQ(std::memcmp(copy.executor.View(id).data, run.executor().View(id).data,
                                static_cast<size_t>(SizeOf(tensor).count())),
                    0)
              << tensor.name;
        }
      }
    }
  }
}

// Logits of kLossRows rows at a time, or a multiple, in place of all.
TEST(SameBits, WithTheLossInChunks) {
  for (const TinyModel& tiny : TinyModels()) {
    if (tiny.task == Task::kSequenceClassification) continue;
    const TinyModel model = Larger(tiny);
    SCOPED_TRACE(model.name);
    NativeOptions options = LargerOptions(model);
    options.model.target_sequence = model.task == Task::kSeq2SeqLm ? 150 : 0;
    options.model.label_smoothing = 0.1F;
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      options.precision = precision;
      options.gradient_accumulation_steps = 2;  // float32 sums beside 16-bit storage, too
      options.model.loss_chunk_rows = 0;
      TinyRun whole(model, options);
      const float loss = whole.ForwardBackward();
      whole.ForwardBackward(1);
      for (const int64_t rows : {cpu::kLossRows, 2 * cpu::kLossRows}) {
        options.model.loss_chunk_rows = rows;
        TinyRun chunks(model, options);
        EXPECT_EQ(chunks.ForwardBackward(), loss);
        chunks.ForwardBackward(1);
        EXPECT_EQ(chunks.Gradients(), whole.Gradients());
        EXPECT_LT(chunks.step().plan.size, whole.step().plan.size);
      }
    }
  }
}

// Chunks of other sizes add in another order.
TEST(SameBits, OrNearlyWithTheLossInChunksOfAnySize) {
  for (const TinyModel& model : TinyModels()) {
    if (model.task == Task::kSequenceClassification) continue;
    SCOPED_TRACE(model.name);
    NativeOptions options = TinyOptions(model);
    TinyRun whole(model, options);
    options.model.loss_chunk_rows = 7;
    TinyRun chunks(model, options);
    const float loss = whole.ForwardBackward();
    EXPECT_NEAR(chunks.ForwardBackward(), loss, 1e-6F * loss);
  }
}

std::vector<double> GradientsOf(const NativeStep& step, const Executor& executor) {
  std::vector<double> values;
  for (const graph::Parameter& parameter : step.graph().parameters()) {
    const TensorView& view = executor.View(parameter.gradient);
    const auto* data = view.As<float>();
    values.insert(values.end(), data, data + view.shape.NumElements());
  }
  return values;
}

double RelativeError(const std::vector<double>& got, const std::vector<double>& expected) {
  double difference = 0;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return std::sqrt(difference / squares);
}

// The loss is divided by the targets of the whole window, so micro-batches need not be of equal
// size, nor have equally many targets.
TEST(Accumulation, OfUnevenMicroBatchesIsTheWholeBatch) {
  constexpr uint64_t kSeed = 7;
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    Result<ModelConfig> config = ModelConfig::FromJson(model.config, model.name);
    ASSERT_TRUE(config.ok());
    NativeOptions options = TinyOptions(model);
    options.model.dropout = false;
    options.gradient_accumulation_steps = 3;
    options.model.rows.batch = 6;
    TinyRun whole(model, options, kSeed);
    const float loss = whole.ForwardBackward();
    const auto expected = GradientsOf(whole.step(), whole.executor());
    const float targets = whole.scalars().targets;

    StepScalars scalars = whole.scalars();
    const auto end = Bytes(16 << 20);
    const HostArena arena = *HostArena::Create(end);
    double sum = 0;
    float seen = 0;
    int64_t first = 0;
    for (const int64_t batch : {1, 3, 2}) {
      options.model.rows.batch = batch;
      Result<NativeStep> step = PlanTrainingStepBeside(*config, options, whole.step());
      ASSERT_TRUE(step.ok()) << step.error().message;
      ASSERT_LT(step->plan.size, end);
      const Executor executor(step->graph(), step->plan, arena.bytes());
      if (first == 0) {
        const std::byte* weights = whole.executor().View(static_cast<graph::TensorId>(0)).data -
                                   whole.step().plan.offsets[0].count();
        std::memcpy(arena.bytes().data(), weights,
                    static_cast<size_t>(whole.step().plan.shared.count()));
        *executor.View(step->model.loss).As<float>() = 0;
      }
      seen += FillTinyInputs(executor, batch, kSeed, first);
      executor.Run(graph::Phase::kForward, scalars);
      executor.Run(graph::Phase::kBackward, scalars);
      sum = static_cast<double>(*executor.View(step->model.loss).As<float>());
      first += batch;
      ++scalars.micro_step;
      if (first < 6) continue;
      EXPECT_EQ(seen, targets);
      EXPECT_NEAR(sum / static_cast<double>(targets), loss, 1e-6 * static_cast<double>(loss));
      EXPECT_LT(RelativeError(GradientsOf(*step, executor), expected), 1e-6);
    }
  }
}

}  // namespace
}  // namespace headroom::engine
