// SPDX-License-Identifier: Apache-2.0
//
// Times training steps of the CUDA backend on the shapes of docs/performance.md: random weights and
// tokens, 8 steps of warm-up, then 30 that are timed, five times.
//
//   cuda_bench [--profile] [--no-cudnn] [NAME …]    bert-b4 bert-b32 gpt2-b8 gpt2-b32 seq2seq …
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/executor.h"
#include "engine/initialise.h"
#include "engine/native_step.h"
#include "observe/nvml.h"

namespace headroom::engine {
namespace {

using graph::Role;
using graph::TensorId;
using Clock = std::chrono::steady_clock;

struct Work {
  std::string name;
  std::string config;
  Task task;
  int64_t batch, sequence;
  Precision precision = Precision::kBf16;
  bool dropout = true;
  bool lean = false;
  graph::Recompute recompute = graph::Recompute::kNone;
};

std::vector<Work> Works() {
  const std::string bert = R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 1024,
    "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096,
    "max_position_embeddings": 512, "type_vocab_size": 2, "num_labels": 2, "pad_token_id": 0,
    "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1})";
  const std::string gpt2 = R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768,
    "n_layer": 12, "n_head": 12, "n_positions": 1024, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0})";
  const std::string marian = R"({"model_type": "marian", "vocab_size": 32000, "d_model": 512,
    "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048,
    "max_position_embeddings": 512, "dropout": 0.1, "attention_dropout": 0.1,
    "activation_function": "relu", "scale_embedding": true, "pad_token_id": 0})";
  const Task classify = Task::kSequenceClassification;
  return {{"bert-b4", bert, classify, 4, 512},
          {"bert-b4-fp16", bert, classify, 4, 512, Precision::kFp16},
          {"bert-b4-tf32", bert, classify, 4, 512, Precision::kTf32},
          {"bert-b4-fp32", bert, classify, 4, 512, Precision::kFp32},
          {"bert-b4-lean", bert, classify, 4, 512, Precision::kBf16, true, true,
           graph::Recompute::kBlock},
          {"bert-b4-recompute", bert, classify, 4, 512, Precision::kBf16, true, false,
           graph::Recompute::kCheap},
          {"bert-b32", bert, classify, 32, 512},
          {"gpt2-b8", gpt2, Task::kCausalLm, 8, 1024},
          {"gpt2-b8-recompute", gpt2, Task::kCausalLm, 8, 1024, Precision::kBf16, true, false,
           graph::Recompute::kCheap},
          {"gpt2-b8-block", gpt2, Task::kCausalLm, 8, 1024, Precision::kBf16, true, false,
           graph::Recompute::kBlock},
          {"gpt2-b32", gpt2, Task::kCausalLm, 32, 1024},
          {"seq2seq-b32", marian, Task::kSeq2SeqLm, 32, 128}};
}

NativeOptions OptionsOf(const Work& work) {
  NativeOptions options;
  options.model.task = work.task;
  options.model.rows = {.batch = work.batch, .sequence = work.sequence};
  options.model.target_sequence = work.task == Task::kSeq2SeqLm ? work.sequence : 0;
  options.model.loss_chunk_rows = 4096;
  options.precision = work.precision;
  options.lean = work.lean;
  options.recompute = work.recompute;
  options.optimizer.eight_bit = work.lean;
  options.cuda = true;
  return options;
}

// Random tokens below `classes`, full lengths. Returns the number of targets.
float FillInputs(const Executor& executor, const Work& work, int64_t classes, CudaExecutor& cuda) {
  std::mt19937 random(1);
  float targets = 0;
  for (size_t i = 0; i < executor.graph().tensors().size(); ++i) {
    const graph::Tensor& tensor = executor.graph().tensors()[i];
    if (tensor.role != Role::kInput) continue;
    const auto id = static_cast<TensorId>(i);
    const TensorView& view = executor.View(id);
    const int64_t count = tensor.shape.NumElements();
    const bool lengths = tensor.name.ends_with("lengths");
    const bool small =
        tensor.name == "token_type_ids" || (tensor.name == "labels" && count == work.batch);
    for (int64_t k = 0; k < count; ++k) {
      const auto value = static_cast<int64_t>(random());
      view.As<int32_t>()[k] =
          static_cast<int32_t>(lengths ? work.sequence : value % (small ? 2 : classes));
    }
    if (tensor.name == "labels") targets += static_cast<float>(count);
    cuda.Upload(id, view.data);
  }
  return targets;
}

// This process's bytes on the card, as NVML has them; 0 where it does not tell.
Bytes ProcessMemory() { return observe::ThisProcessMemory(0).value_or(Bytes(0)); }

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void PrintProfile(const NativeStep& step, CudaExecutor& cuda, const StepScalars& scalars) {
  cuda.Profile(scalars);
  const std::vector<double> times = cuda.Profile(scalars);
  std::map<std::string, std::pair<int, double>> kinds;
  for (size_t i = 0; i < times.size(); ++i) {
    auto& [count, sum] = kinds[std::string(Name(step.graph().ops()[i].kind))];
    ++count;
    sum += 1000 * times[i];
  }
  for (const auto& [name, entry] : kinds) {
    std::printf("    %-26s %4d ops %8.3f ms\n", name.c_str(), entry.first, entry.second);
  }
}

Status Measure(const Work& work, bool profile, bool cudnn) {
  HEADROOM_ASSIGN_OR_RETURN(const ModelConfig config,
                            ModelConfig::FromJson(work.config, work.name));
  HEADROOM_ASSIGN_OR_RETURN(const NativeStep step, PlanTrainingStep(config, OptionsOf(work)));
  HEADROOM_ASSIGN_OR_RETURN(const std::unique_ptr<CudaDevice> device,
                            CudaDevice::Open(0, {.cudnn = cudnn}));
  const Bytes opened = ProcessMemory();
  HEADROOM_RETURN_IF_ERROR(device->Allocate(step.plan.size));
  const Bytes allocated = ProcessMemory();
  CudaExecutor cuda(*device, step.graph(), step.plan,
                    {.tf32 = work.precision == Precision::kTf32, .cudnn = cudnn});
  cuda.Tune();
  HEADROOM_RETURN_IF_ERROR(device->Synchronize());
  const Bytes tuned = ProcessMemory();
  HEADROOM_ASSIGN_OR_RETURN(const HostArena arena, HostArena::Create(step.plan.size));
  const Executor executor(step.graph(), step.plan, arena.bytes());
  FillConstants(step.model, executor);
  InitialiseWeights(config, executor, 1);
  cuda.UploadArena(arena.bytes().data(), step.plan.shared);
  const int64_t classes = config.MaybeInt("vocab_size").value_or(2);
  StepScalars scalars;
  scalars.seed = 1;
  scalars.learning_rate = 1e-5F;
  scalars.max_grad_norm = 1;
  scalars.loss_scale = work.precision == Precision::kFp16 ? 1024.0F : 1.0F;
  scalars.targets = FillInputs(executor, work, classes, cuda);
  const auto run = [&] {
    cuda.Zero(step.model.loss);
    cuda.Run(Section::kMicroStep, scalars);
    cuda.Run(Section::kOptimizer, scalars);
    ++scalars.step;
  };
  float first = 0;
  float last = 0;
  run();
  cuda.Download(step.model.loss, reinterpret_cast<std::byte*>(&first));
  for (int i = 0; i < 8; ++i) run();
  HEADROOM_RETURN_IF_ERROR(device->Synchronize());
  const Bytes running = ProcessMemory();
  constexpr int kSteps = 30;
  std::vector<double> times;
  for (int turn = 0; turn < 5; ++turn) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kSteps; ++i) run();
    HEADROOM_RETURN_IF_ERROR(device->Synchronize());
    times.push_back(Seconds(start) * 1000 / kSteps);
  }
  cuda.Download(step.model.loss, reinterpret_cast<std::byte*>(&last));
  std::sort(times.begin(), times.end());
  std::printf(
      "%-18s %8.3f ms (%.3f-%.3f)  %8.1f samples/s  loss %.4f -> %.4f\n", work.name.c_str(),
      times[2], times.front(), times.back(), 1000 * static_cast<double>(work.batch) / times[2],
      static_cast<double>(first / scalars.targets), static_cast<double>(last / scalars.targets));
  std::printf(
      "    arena %.1f MiB; process by NVML: opened %.0f, with the arena %.0f, tuned %.0f, running "
      "%.0f MiB; %zu ops\n",
      step.plan.size.mib(), opened.mib(), allocated.mib(), tuned.mib(), running.mib(),
      step.graph().ops().size());
  std::printf("    attention: %s\n", cuda.DescribeAttention().c_str());
  if (profile) PrintProfile(step, cuda, scalars);
  std::fflush(stdout);
  return {};
}

int Main(const std::vector<std::string>& words) {
  bool profile = false;
  bool cudnn = true;
  bool good = true;
  std::vector<std::string> names;
  for (const std::string& word : words) {
    if (word == "--profile") {
      profile = true;
    } else if (word == "--no-cudnn") {
      cudnn = false;
    } else {
      names.push_back(word);
    }
  }
  for (const Work& work : Works()) {
    if (!names.empty() && std::find(names.begin(), names.end(), work.name) == names.end()) continue;
    const Status status = Measure(work, profile, cudnn);
    if (status.ok()) continue;
    std::printf("%s: %s\n", work.name.c_str(), status.error().message.c_str());
    good = false;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace headroom::engine

int main(int argc, char** argv) {
  return headroom::engine::Main(std::vector<std::string>(argv + 1, argv + argc));
}
