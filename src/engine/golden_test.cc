// SPDX-License-Identifier: Apache-2.0
//
// The engine against PyTorch: what bench/engine_golden.py recorded of a tiny model of each family.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "engine/executor.h"
#include "engine/files/convert.h"
#include "engine/files/weights.h"
#include "engine/initialise.h"
#include "engine/native_step.h"

namespace headroom::engine {
namespace {

struct Recorded {
  std::string name;
  ModelConfig config;
  Task task;
  SafetensorsReader reader;
};

Recorded Record(const std::string& name) {
  const std::string stem = HEADROOM_TEST_DATA "/engine/" + name;
  Result<std::string> text = ReadFile(stem + ".json");
  HEADROOM_CHECK(text.ok(), "no golden file");
  Result<ModelConfig> config = ModelConfig::FromJson(*text, name);
  HEADROOM_CHECK(config.ok(), config.error().message);
  Result<SafetensorsReader> reader = SafetensorsReader::Open(stem + ".safetensors");
  HEADROOM_CHECK(reader.ok(), reader.error().message);
  const std::optional<Task> task = ParseTask(config->String("golden_task"));
  HEADROOM_CHECK(task.has_value(), "a task without a name");
  return {name, std::move(*config), *task, std::move(*reader)};
}

std::vector<double> Doubles(std::span<const std::byte> bytes, DType dtype) {
  const size_t count = bytes.size() / static_cast<size_t>(ElementSize(dtype));
  std::vector<double> values(count);
  Convert(bytes, dtype, std::as_writable_bytes(std::span(values)), DType::kFloat64);
  return values;
}

std::vector<double> Expected(const Recorded& recorded, const std::string& name) {
  const TensorEntry* entry = recorded.reader.Find(name);
  HEADROOM_CHECK(entry != nullptr, "the golden file lacks " + name);
  return Doubles(entry->bytes, *entry->dtype);
}

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

struct Difference {
  double cosine = 1;
  double error = 0;  // norm of the difference over the norm of what is expected
};

Difference Between(const std::vector<double>& got, const std::vector<double>& expected) {
  HEADROOM_CHECK(got.size() == expected.size(), "tensors of different sizes");
  double dot = 0;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    dot += got[i] * expected[i];
    squares += (got[i] - expected[i]) * (got[i] - expected[i]);
  }
  return {dot / (Norm(got) * Norm(expected)), std::sqrt(squares) / Norm(expected)};
}

// The worst of some tensors.
struct Worst {
  Difference difference;
  std::string name;

  void Add(const std::string& of, const Difference& other) {
    if (other.error < difference.error) return;
    difference.error = other.error;
    name = of;
  }
  void AddCosine(const Difference& other) {
    difference.cosine = std::min(difference.cosine, other.cosine);
  }
};

NativeOptions OptionsOf(const Recorded& recorded) {
  NativeOptions options;
  options.model.task = recorded.task;
  options.model.rows = {.batch = 2, .sequence = 12};
  options.model.target_sequence = recorded.task == Task::kSeq2SeqLm ? 10 : 0;
  options.optimizer.weight_decay = 0.01F;
  return options;
}

// A planned step in an arena of its own, with the weights and the batch of the recording.
class Replay {
 public:
  Replay(const Recorded& recorded, const NativeOptions& options) : recorded_(recorded) {
    Result<NativeStep> step = options.model.head == Head::kLoss
                                  ? PlanTrainingStep(recorded.config, options)
                                  : PlanForward(recorded.config, options);
    HEADROOM_CHECK(step.ok(), step.error().message);
    step_ = std::make_unique<NativeStep>(std::move(*step));
    Result<HostArena> arena = HostArena::Create(step_->plan.size);
    HEADROOM_CHECK(arena.ok(), arena.error().message);
    arena_ = std::move(*arena);
    executor_ = std::make_unique<Executor>(step_->graph(), step_->plan, arena_.bytes());
    FillConstants(step_->model, *executor_);
    const Result<LoadedWeights> loaded = LoadWeights(recorded.reader, step_->model, *executor_);
    HEADROOM_CHECK(loaded.ok(), loaded.error().message);
    HEADROOM_CHECK(loaded->initialised.empty(), "a weight that was not recorded");
    FillInputs();
  }

  const NativeStep& step() const { return *step_; }
  StepScalars& scalars() { return scalars_; }

  double ForwardBackward() {
    float* loss = executor_->View(step_->model.loss).As<float>();
    *loss = 0;
    executor_->Run(graph::Phase::kForward, scalars_);
    executor_->Run(graph::Phase::kBackward, scalars_);
    return static_cast<double>(*loss) / static_cast<double>(scalars_.targets);
  }
  void Forward() {
    scalars_.training = false;
    executor_->Run(graph::Phase::kForward, scalars_);
  }
  void Update() {
    executor_->Run(graph::Phase::kOptimizer, scalars_);
    ++scalars_.step;
  }

  std::vector<double> Values(graph::TensorId id) const {
    const TensorView& view = executor_->View(id);
    return Doubles({view.data, static_cast<size_t>(SizeOf(step_->graph().tensor(id)).count())},
                   view.dtype);
  }
  // By the name of a checkpoint.
  std::vector<double> Gradient(const graph::Parameter& parameter,
                               const graph::ParameterPart& part) const {
    const std::vector<double> all = Values(parameter.gradient);
    const int64_t columns = part.shape.rank() > 1 ? part.shape[-1] : 1;
    const auto first = static_cast<std::ptrdiff_t>(part.first_row * columns);
    return {all.begin() + first, all.begin() + first + part.shape.NumElements()};
  }

  // Of the gradients that are more than rounding: a bias of keys changes no attention.
  Worst Gradients() const {
    Worst worst;
    for (const graph::Parameter& parameter : step_->graph().parameters()) {
      for (const graph::ParameterPart& part : parameter.parts) {
        const std::vector<double> expected = Expected(recorded_, "grad/" + part.name);
        if (Norm(expected) < 1e-6) continue;
        const Difference difference = Between(Gradient(parameter, part), expected);
        worst.Add(part.name, difference);
        worst.AddCosine(difference);
      }
    }
    return worst;
  }

 private:
  void FillInputs() {
    for (size_t i = 0; i < step_->graph().tensors().size(); ++i) {
      const graph::Tensor& tensor = step_->graph().tensors()[i];
      if (tensor.role != graph::Role::kInput) continue;
      auto* values = executor_->View(static_cast<graph::TensorId>(i)).As<int32_t>();
      if (tensor.name == "decoder_lengths") {
        std::fill_n(values, 2, 10);
        continue;
      }
      const TensorEntry* entry = recorded_.reader.Find("input/" + tensor.name);
      HEADROOM_CHECK(entry != nullptr, "an input that was not recorded: " + tensor.name);
      std::memcpy(values, entry->bytes.data(), entry->bytes.size());
      if (tensor.name != "labels") continue;
      scalars_.targets = static_cast<float>(std::count_if(
          values, values + tensor.shape.NumElements(), [](int32_t value) { return value >= 0; }));
    }
  }

  const Recorded& recorded_;
  std::unique_ptr<NativeStep> step_;
  HostArena arena_;
  std::unique_ptr<Executor> executor_;
  StepScalars scalars_;
};

class Golden : public testing::TestWithParam<std::string> {
 protected:
  const Recorded recorded_ = Record(GetParam());
};

TEST_P(Golden, LossAndEveryGradient) {
  Replay run(recorded_, OptionsOf(recorded_));
  const double expected = Expected(recorded_, "output/loss")[0];
  EXPECT_NEAR(run.ForwardBackward(), expected, 2e-6 * expected);
  const Worst worst = run.Gradients();
  std::printf("  worst gradient: off by %.1e, %s\n", worst.difference.error, worst.name.c_str());
  EXPECT_GT(worst.difference.cosine, 0.999999);
  EXPECT_LT(worst.difference.error, 2e-5) << worst.name;
}

TEST_P(Golden, SixteenBitGradientsPointTheSameWay) {
  for (const bool lean : {false, true}) {
    NativeOptions options = OptionsOf(recorded_);
    options.precision = Precision::kBf16;
    options.lean = lean;
    Replay run(recorded_, options);
    const double expected = Expected(recorded_, "output/loss")[0];
    EXPECT_NEAR(run.ForwardBackward(), expected, 0.02 * expected);
    const Worst worst = run.Gradients();
    std::printf("  worst gradient: cosine %.5f, off by %.1e, %s\n", worst.difference.cosine,
                worst.difference.error, worst.name.c_str());
    EXPECT_GT(worst.difference.cosine, 0.99) << worst.name;
  }
}

TEST_P(Golden, Logits) {
  const bool classifier = recorded_.task == Task::kSequenceClassification;
  NativeOptions options = OptionsOf(recorded_);
  options.model.head = classifier ? Head::kLoss : Head::kNextToken;
  Replay run(recorded_, options);
  run.Forward();
  const Difference difference =
      Between(run.Values(run.step().model.logits), Expected(recorded_, "output/logits"));
  EXPECT_LT(difference.error, 5e-6);
}

// Of the tokens that are not padding.
TEST_P(Golden, LastHiddenState) {
  NativeOptions options = OptionsOf(recorded_);
  options.model.head = Head::kHidden;
  Replay run(recorded_, options);
  run.Forward();
  std::vector<double> got = run.Values(run.step().model.hidden);
  std::vector<double> expected = Expected(recorded_, "output/hidden");
  if (recorded_.task != Task::kSeq2SeqLm) {
    constexpr std::ptrdiff_t kPadding = 5 * 16;  // of the second sequence
    got.erase(got.end() - kPadding, got.end());
    expected.erase(expected.end() - kPadding, expected.end());
  }
  EXPECT_LT(Between(got, expected).error, 5e-6);
}

TEST_P(Golden, LabelSmoothing) {
  NativeOptions options = OptionsOf(recorded_);
  options.model.label_smoothing = 0.1F;
  Replay run(recorded_, options);
  const double expected = Expected(recorded_, "output/smoothed_loss")[0];
  EXPECT_NEAR(run.ForwardBackward(), expected, 2e-6 * expected);
  const auto tables = run.step().graph().parameters();
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [](const graph::Parameter& p) { return p.embedding; });
  const Difference difference =
      Between(run.Values(table->gradient), Expected(recorded_, "output/smoothed_gradient"));
  EXPECT_LT(difference.error, 2e-5);
}

TEST_P(Golden, TenStepsOfAdamW) {
  Replay run(recorded_, OptionsOf(recorded_));
  run.scalars().learning_rate = 1e-3F;
  run.scalars().max_grad_norm = 1.0F;
  double worst = 0;
  for (const double expected : Expected(recorded_, "output/losses")) {
    const double loss = run.ForwardBackward();
    worst = std::max(worst, std::fabs(loss - expected) / expected);
    run.Update();
  }
  std::printf("  worst loss: off by %.1e\n", worst);
  EXPECT_LT(worst, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Families, Golden,
                         testing::Values("bert_classification", "bert_masked_lm",
                                         "roberta_classification", "roberta_masked_lm", "gpt2",
                                         "llama", "llama3", "qwen2", "bart", "marian", "mbart",
                                         "pegasus"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace headroom::engine
