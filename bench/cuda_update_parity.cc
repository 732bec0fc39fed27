// SPDX-License-Identifier: Apache-2.0
#include "cuda_update_parity.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "cuda_attention_parity.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/half.h"
#include "engine/tiny_training.h"

namespace headroom::engine {
namespace {

using graph::OptimizerKind;

// A multiple of 8, as products of float32 have it in cuda_parity.
constexpr int64_t kVocabulary = 64;

void Replace(std::string& text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
}

// The weight that makes the logits of the loss.
graph::TensorId HeadOf(const graph::Graph& graph) {
  graph::TensorId head = graph::kNoTensor;
  for (const graph::Op& op : graph.ops()) {
    if (op.kind == graph::OpKind::kCrossEntropy) break;
    if (op.kind == graph::OpKind::kLinear || op.kind == graph::OpKind::kLinearLoss) {
      head = op.inputs[1];
    }
    if (op.kind == graph::OpKind::kLinearLoss) break;
  }
  return head;
}

// A device with an arena of the run's bytes. Attention is ours: others check that of cuDNN.
struct OnCuda {
  explicit OnCuda(const TinyRun& run) : size(run.step().plan.size) {
    Result<std::unique_ptr<CudaDevice>> opened = CudaDevice::Open(0, {.cudnn = false});
    HEADROOM_CHECK(opened.ok(), opened.error().message);
    device = std::move(*opened);
    HEADROOM_CHECK(device->Allocate(size).ok(), "an arena");
    executor = device->NewExecutor(run.step().graph(), run.step().plan);
    executor->UploadArena(run.arena().data(), size);
  }
  std::vector<std::byte> Arena() const {
    std::vector<std::byte> bytes(static_cast<size_t>(size.count()));
    executor->DownloadArena(bytes.data(), size);
    return bytes;
  }

  Bytes size;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<DeviceExecutor> executor;
};

// Weights that differ, and that do by more than a place.
struct Differences {
  int64_t all = 0;
  int64_t elsewhere = 0;
  int64_t far = 0;
};

Differences CountDifferences(const TinyRun& run, const std::vector<std::byte>& arena) {
  Differences differences;
  for (const graph::Parameter& parameter : run.step().graph().parameters()) {
    const TensorView& want = run.executor().View(parameter.weight);
    HEADROOM_CHECK(want.dtype == DType::kBFloat16, "a weight that is not lean");
    const auto* got =
        reinterpret_cast<const uint16_t*>(arena.data() + (want.data - run.arena().data()));
    for (int64_t i = 0; i < want.shape.NumElements(); ++i) {
      const int distance = std::abs(static_cast<int>(got[i]) - want.As<uint16_t>()[i]);
      ++differences.all;
      differences.elsewhere += distance > 0 ? 1 : 0;
      differences.far += distance > 1 ? 1 : 0;
    }
  }
  return differences;
}

void CheckRounding(const std::string& name, const graph::OptimizerOptions& optimizer,
                   double most_elsewhere) {
  TinyModel model = TinyModelOf("bert masked lm", kVocabulary);
  // Parameters that have 8-bit states, and ends of blocks that are no multiple of anything.
  Replace(model.config, "\"hidden_size\": 32", "\"hidden_size\": 100");
  Replace(model.config, "\"intermediate_size\": 48", "\"intermediate_size\": 205");
  NativeOptions options = TinyOptions(model);
  options.precision = Precision::kBf16;
  options.lean = true;
  options.cuda = true;
  options.optimizer = optimizer;
  TinyRun run(model, options);
  run.ForwardBackward();
  OnCuda cuda(run);
  StepScalars scalars = run.scalars();
  scalars.learning_rate = 0x1p-9F;
  const std::vector<std::byte> before = run.Weights();
  cuda.executor->Run(Section::kOptimizer, scalars);
  run.Update(0x1p-9F);
  const Differences differences = CountDifferences(run, cuda.Arena());
  std::printf("update %-16s lean: %lld of %lld weights are beside the CPU's\n", name.c_str(),
              static_cast<long long>(differences.elsewhere),
              static_cast<long long>(differences.all));
  Check(before != run.Weights(), name + " lean: an update that changes something");
  Check(static_cast<double>(differences.elsewhere) <=
            most_elsewhere * static_cast<double>(differences.all),
        name + " lean: weights beside the CPU's");
  Check(differences.far == 0, name + " lean: weights further than a place from the CPU's");
}

void CheckHalt() {
  const TinyModel model = TinyModelOf("gpt2", kVocabulary);
  NativeOptions options = TinyOptions(model);
  options.cuda = true;
  TinyRun run(model, options);
  run.ForwardBackward();
  auto* loss = run.executor().View(run.step().model.loss).As<float>();
  const float finite = *loss;
  *loss = std::numeric_limits<float>::infinity();
  OnCuda cuda(run);
  StepScalars scalars = run.scalars();
  scalars.learning_rate = 1e-2F;
  scalars.halt = true;
  const auto weights = [&](const OnCuda& of) {
    const std::vector<std::byte> arena = of.Arena();
    std::vector<std::byte> bytes;
    for (const graph::Parameter& parameter : run.step().graph().parameters()) {
      const TensorView& view = run.executor().View(parameter.weight);
      const std::byte* data = arena.data() + (view.data - run.arena().data());
      bytes.insert(bytes.end(), data, data + view.shape.NumElements() * 4);
    }
    return bytes;
  };
  const std::vector<std::byte> before = weights(cuda);
  cuda.executor->Run(Section::kOptimizer, scalars);
  Check(weights(cuda) == before, "halt: an update behind a loss that is not finite");
  cuda.executor->Upload(run.step().model.loss, reinterpret_cast<const std::byte*>(&finite));
  cuda.executor->Run(Section::kOptimizer, scalars);
  Check(weights(cuda) == before, "halt: an update behind one that was halted");
  *loss = finite;
  const OnCuda other(run);
  other.executor->Run(Section::kOptimizer, scalars);
  Check(weights(other) != before, "halt: an update of a step that is finite");
}

// The losses, or the error.
std::string Train(const TinyModel& model, double rate, Device* device, Recorder& recorder) {
  TrainOptions options;
  options.task = model.task;
  options.per_device_train_batch_size = 4;
  options.max_steps = 20;
  options.eval_steps = 7;
  options.learning_rate = rate;
  options.lr_scheduler_type = ScheduleKind::kConstant;
  options.max_grad_norm = rate > 1 ? 0 : 1;
  options.cuda = device != nullptr;
  Result<Trainer> trainer = Trainer::Create(ConfigOf(model), options, DataFor(model));
  HEADROOM_CHECK(trainer.ok(), trainer.error().message);
  const Status started = trainer->Start({.device = device});
  HEADROOM_CHECK(started.ok(), started.error().message);
  const Result<TrainResult> result = trainer->Run(recorder);
  return result.ok() ? "" : result.error().message;
}

std::string TrainOnCuda(const TinyModel& model, double rate, Recorder& recorder) {
  Result<std::unique_ptr<CudaDevice>> device = CudaDevice::Open(0);
  HEADROOM_CHECK(device.ok(), device.error().message);
  return Train(model, rate, device->get(), recorder);
}

// "step 2: the loss is nan; the first tensor …" without the value, which may be infinite in one.
std::string WithoutLoss(std::string error) {
  const size_t first = error.find(": the loss is");
  if (first != std::string::npos) error.erase(first, error.find(';', first) - first);
  return error;
}

}  // namespace

void CheckUpdates() {
  CheckRounding("sgd", {.kind = OptimizerKind::kSgd}, 0);
  CheckRounding("adamw", {}, 0.002);
  CheckRounding("adamw_bnb_8bit", {.eight_bit = true}, 0.002);
  CheckHalt();
}

void CheckLosses() {
  struct Case {
    const char* model;
    int64_t vocabulary;
    int64_t first_row, rows;  // of the head's weight, not of tokens that occur
  };
  for (const Case& test :
       {Case{"bert classifier", 64, 1, 1}, Case{"gpt2", 128, 64, 8}, Case{"gpt2", 9000, 4096, 8}}) {
    const TinyModel model = TinyModelOf(test.model, test.vocabulary);
    NativeOptions options = TinyOptions(model);
    options.precision = Precision::kBf16;
    options.cuda = true;
    TinyRun run(model, options);
    const TensorView weight = run.executor().View(HeadOf(run.step().graph()));
    for (int64_t i = 0; i < test.rows * weight.cols(); ++i) {
      constexpr uint16_t kNaN = 0x7fc0;
      weight.As<uint16_t>()[test.first_row * weight.cols() + i] = kNaN;
    }
    const OnCuda cuda(run);
    cuda.executor->Run(Section::kMicroStep, run.scalars());
    float loss = 0;
    cuda.executor->Download(run.step().model.loss, reinterpret_cast<std::byte*>(&loss));
    Check(std::isnan(run.ForwardBackward()) && std::isnan(loss),
          Format("{} of {} tokens: a loss of {} from logits that are no number", test.model,
                 test.vocabulary, loss));
  }
}

void CheckRuns() {
  for (const TinyModel& model : TinyModels(kVocabulary)) {
    Recorder cpu;
    Recorder cuda;
    Check(Train(model, 1e-3, nullptr, cpu).empty(), model.name + ": a run on the CPU");
    Check(TrainOnCuda(model, 1e-3, cuda).empty(), model.name + ": a run on CUDA");
    double worst = cpu.losses.size() == cuda.losses.size() ? 0 : 1;
    for (size_t i = 0; i < cpu.losses.size() && worst < 1; ++i) {
      worst = std::max(worst, std::fabs(cuda.losses[i] / cpu.losses[i] - 1));
    }
    std::printf("run    %-22s 20 losses differ by %.1e at most\n", model.name.c_str(), worst);
    Check(worst <= 1e-4, model.name + ": losses of a run");
    Recorder ignored;
    const std::string want = WithoutLoss(Train(model, 1e30, nullptr, ignored));
    const std::string got = WithoutLoss(TrainOnCuda(model, 1e30, ignored));
    Check(want == got, Format("{}: ends with \"{}\", the CPU with \"{}\"", model.name, got, want));
  }
}

}  // namespace headroom::engine
