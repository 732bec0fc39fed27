// SPDX-License-Identifier: Apache-2.0
//
// native_plan_bench [FACTOR]: training steps of known models as the native engine plans them. For
// each model, precision, recompute policy, batch size, and rows of logits at a time (0: all): bytes
// of the arena, its ratio to the lower bound, and the milliseconds from the config to the proven
// plan; then the worst of all. Exits with 1 where a ratio is above FACTOR (1.01).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/bytes.h"
#include "engine/native_step.h"
#include "model/catalogue.h"

namespace headroom::engine {
namespace {

struct Case {
  const char* model;
  Task task;
  int64_t sequence;
};

constexpr Case kCases[] = {{"bert-large-uncased", Task::kMaskedLm, 512},
                           {"bert-large-uncased", Task::kSequenceClassification, 128},
                           {"roberta-base", Task::kSequenceClassification, 128},
                           {"gpt2-xl", Task::kCausalLm, 1024},
                           {"Llama-3.1-8B", Task::kCausalLm, 2048},
                           {"bart-large", Task::kSeq2SeqLm, 512},
                           {"opus-mt-en-de", Task::kSeq2SeqLm, 128}};
constexpr int64_t kBatches[] = {1, 2, 4, 8, 16, 32};

struct Worst {
  int plans = 0;
  double ratio = 1;
  double milliseconds = 0;
};

void Plan(const Case& known, Precision precision, graph::Recompute recompute, int64_t batch,
          int64_t chunk, Worst& worst) {
  const KnownModel* model = FindKnownModel(known.model);
  if (model == nullptr) {
    std::printf("%s is not known\n", known.model);
    return;
  }
  NativeOptions options;
  options.model.task = known.task;
  options.model.rows = {.batch = batch, .sequence = known.sequence};
  options.model.loss_chunk_rows = chunk;
  options.precision = precision;
  options.recompute = recompute;
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig config = *ModelConfig::FromJson(std::string(model->config_json), known.model);
  const Result<NativeStep> step = PlanTrainingStep(config, options);
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  if (!step.ok()) {
    std::printf("%-20s %s\n", known.model, step.error().message.c_str());
    return;
  }
  const double ratio = step->plan.Ratio();
  std::printf("%-20s %-24s %-5s %-6s %3lld x %-5lld %5lld %10s  %.4f %6.1f ms  %zu ops\n",
              known.model, std::string(Name(known.task)).c_str(),
              std::string(Name(precision)).c_str(), std::string(Name(recompute)).c_str(),
              static_cast<long long>(batch), static_cast<long long>(known.sequence),
              static_cast<long long>(chunk), FormatBytes(step->plan.size).c_str(), ratio,
              time.count(), step->graph().ops().size());
  ++worst.plans;
  worst.ratio = std::max(worst.ratio, ratio);
  worst.milliseconds = std::max(worst.milliseconds, time.count());
}

int Main(double factor) {
  Worst worst;
  for (const Case& known : kCases) {
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      for (const auto recompute :
           {graph::Recompute::kNone, graph::Recompute::kCheap, graph::Recompute::kBlock}) {
        for (const int64_t batch : kBatches) {
          for (const int64_t chunk : {0, 1024}) {
            Plan(known, precision, recompute, batch, chunk, worst);
          }
        }
      }
    }
  }
  std::printf("%d plans, worst ratio %.4f, longest %.1f ms\n", worst.plans, worst.ratio,
              worst.milliseconds);
  return worst.ratio > factor ? 1 : 0;
}

}  // namespace
}  // namespace headroom::engine

int main(int argc, char** argv) {
  return headroom::engine::Main(argc > 1 ? std::atof(argv[1]) : 1.01);
}
