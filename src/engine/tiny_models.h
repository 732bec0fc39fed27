// SPDX-License-Identifier: Apache-2.0
//
// For tests: a model of a few thousand parameters for each family, with data to train it on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/native_step.h"

namespace headroom::engine {

struct TinyModel {
  std::string name;    // for messages
  std::string config;  // JSON
  Task task = Task::kCausalLm;
};

// BERT (classification, masked LM), RoBERTa, GPT-2, Llama (GQA), BART, Marian (norms behind),
// mBART (norms first), with dropout. Data for 61 tokens serves larger vocabularies too.
std::vector<TinyModel> TinyModels(int64_t vocabulary = 61);
// One of them. REQUIRES: there is one of that name.
TinyModel TinyModelOf(const std::string& name, int64_t vocabulary = 61);

// A planned step in an arena of its own, with weights and one batch of seeded data.
class TinyRun {
 public:
  TinyRun(const TinyModel& model, NativeOptions options, uint64_t seed = 7);

  // Forward and backward of one micro-step, without the optimizer. Returns the mean loss.
  float ForwardBackward(int micro_step = 0);
  void Update(float learning_rate);
  // Poisons each transient tensor before it is written.
  void set_poison(bool poison) { poison_ = poison; }

  const NativeStep& step() const { return *step_; }
  const Executor& executor() const { return *executor_; }
  std::span<std::byte> arena() const { return arena_.bytes(); }
  StepScalars& scalars() { return scalars_; }
  // The bytes of all gradients, or of all weights (masters where there are), one behind the other.
  std::vector<std::byte> Gradients() const;
  std::vector<std::byte> Weights() const;

 private:
  std::vector<std::byte> BytesOf(bool gradients) const;

  std::unique_ptr<NativeStep> step_;
  HostArena arena_;
  std::unique_ptr<Executor> executor_;
  StepScalars scalars_;
  bool poison_ = false;
};

// Fills the inputs with `batch` sequences, each following from the seed and its number alone, the
// first being `first_sequence`; every other one is padded. Returns the number of targets.
float FillTinyInputs(const Executor& executor, int64_t batch, uint64_t seed,
                     int64_t first_sequence = 0);

// 2 sequences of 12 tokens, the second padded; a decoder's are of 10.
NativeOptions TinyOptions(const TinyModel& model);

// A plan in which every tensor has bytes of its own.
graph::MemoryPlan SeparateBuffers(const graph::Graph& graph);

}  // namespace headroom::engine
