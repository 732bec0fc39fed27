// SPDX-License-Identifier: Apache-2.0
//
// How fast the engine trains: engine_bench MODEL BATCH SEQUENCE STEPS [--ops] prints the seconds of
// each step (forward, backward, AdamW) after two to warm up, one a line; with --ops then those of
// each kind of op. MODEL: minilm or gpt2, in float32, with the dropout of its config. The process
// reads a line before each step when GO is in the environment, so that engine_speed.py can take
// turns with PyTorch.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "engine/executor.h"
#include "engine/initialise.h"
#include "engine/native_step.h"

namespace headroom::engine {
namespace {

constexpr const char* kMinilm = R"({"model_type": "bert", "vocab_size": 30522, "hidden_size": 384,
  "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
  "max_position_embeddings": 512, "type_vocab_size": 2, "num_labels": 2, "pad_token_id": 0})";
constexpr const char* kGpt2 = R"({"model_type": "gpt2", "vocab_size": 8192, "n_embd": 256,
  "n_layer": 4, "n_head": 8, "n_positions": 256})";

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Bench {
 public:
  Bench(const std::string& model, int64_t batch, int64_t sequence) {
    const bool bert = model == "minilm";
    const ModelConfig config = *ModelConfig::FromJson(bert ? kMinilm : kGpt2, model);
    NativeOptions options;
    options.model.task = bert ? Task::kSequenceClassification : Task::kCausalLm;
    options.model.rows = {.batch = batch, .sequence = sequence};
    options.optimizer.weight_decay = 0.01F;
    step_ = *PlanTrainingStep(config, options);
    arena_ = *HostArena::Create(step_.plan.size);
    executor_ = std::make_unique<Executor>(step_.graph(), step_.plan, arena_.bytes());
    InitialiseWeights(config, *executor_, 1);
    Fill("input_ids", 8000);
    Fill("labels", bert ? 2 : 8000);
    Fill("token_type_ids", 1);
    const graph::TensorId lengths = step_.graph().Find(graph::Role::kInput, "lengths");
    std::fill_n(executor_->View(lengths).As<int32_t>(), batch, static_cast<int32_t>(sequence));
    scalars_.targets = static_cast<float>(bert ? batch : batch * sequence);
    scalars_.learning_rate = 1e-5F;
    scalars_.max_grad_norm = 1;
  }

  double Step() {
    const auto start = Clock::now();
    *executor_->View(step_.model.loss).As<float>() = 0;
    const auto ops = step_.graph().ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      const auto before = Clock::now();
      executor_->RunOps(i, i + 1, scalars_);
      seconds_[static_cast<size_t>(ops[i].kind)] += SecondsSince(before);
    }
    ++scalars_.step;
    return SecondsSince(start);
  }
  void Forget() { seconds_ = {}; }

  void PrintOps(int steps) const {
    std::printf("planned %.1f MiB, ratio %.4f\n",
                static_cast<double>(step_.plan.size.count()) / (1 << 20), step_.plan.Ratio());
    for (size_t i = 0; i < seconds_.size(); ++i) {
      if (seconds_[i] == 0) continue;
      const std::string name(Name(static_cast<graph::OpKind>(i)));
      std::printf("%-24s %8.3f ms\n", name.c_str(), 1e3 * seconds_[i] / steps);
    }
  }

 private:
  void Fill(const char* name, int32_t below) {
    const graph::TensorId id = step_.graph().Find(graph::Role::kInput, name);
    if (id == graph::kNoTensor) return;
    const TensorView& view = executor_->View(id);
    for (int64_t i = 0; i < view.shape.NumElements(); ++i) {
      view.As<int32_t>()[i] = static_cast<int32_t>((7919 * i) % below);
    }
  }

  NativeStep step_;
  HostArena arena_;
  std::unique_ptr<Executor> executor_;
  StepScalars scalars_;
  std::array<double, graph::kOpKindCount> seconds_{};
};

int Main(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: engine_bench minilm|gpt2 BATCH SEQUENCE STEPS [--ops]\n", stderr);
    return 2;
  }
  Bench bench(argv[1], std::atoll(argv[2]), std::atoll(argv[3]));
  bench.Step();
  bench.Step();
  bench.Forget();
  const int steps = std::atoi(argv[4]);
  const bool turns = std::getenv("GO") != nullptr;
  for (int i = 0; i < steps; ++i) {
    if (turns && std::getchar() == EOF) break;
    std::printf("%.6f\n", bench.Step());
    std::fflush(stdout);
  }
  if (argc > 5 && std::strcmp(argv[5], "--ops") == 0) bench.PrintOps(steps);
  return 0;
}

}  // namespace
}  // namespace headroom::engine

int main(int argc, char** argv) { return headroom::engine::Main(argc, argv); }
