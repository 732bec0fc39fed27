// SPDX-License-Identifier: Apache-2.0
#include "engine/golden.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "engine/files/convert.h"
#include "engine/files/weights.h"
#include "engine/initialise.h"

namespace headroom::engine {
namespace {

std::vector<double> Doubles(std::span<const std::byte> bytes, DType dtype) {
  const size_t count = bytes.size() / static_cast<size_t>(ElementSize(dtype));
  std::vector<double> values(count);
  Convert(bytes, dtype, std::as_writable_bytes(std::span(values)), DType::kFloat64);
  return values;
}

std::vector<double> Expected(const Golden& golden, const std::string& name) {
  const TensorEntry* entry = golden.reader.Find(name);
  HEADROOM_CHECK(entry != nullptr, "the golden file lacks " + name);
  return Doubles(entry->bytes, *entry->dtype);
}

// What is no number is as far off as can be: a maximum would pass over it.
double OrInfinite(double error) {
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

double Norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

Difference Between(const std::vector<double>& got, const std::vector<double>& expected) {
  HEADROOM_CHECK(got.size() == expected.size(), "tensors of different sizes");
  double dot = 0;
  double squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    dot += got[i] * expected[i];
    squares += (got[i] - expected[i]) * (got[i] - expected[i]);
  }
  return {dot / (Norm(got) * Norm(expected)), OrInfinite(std::sqrt(squares) / Norm(expected))};
}

double LossError(double got, double expected) {
  return OrInfinite(std::fabs(got - expected) / expected);
}

// A planned step in an arena of its own, with the weights and the batch of the recording.
class Replay {
 public:
  Replay(const Golden& golden, NativeOptions options, Device* device) : golden_(golden) {
    options.cuda = device != nullptr;
    Result<NativeStep> step = options.model.head == Head::kLoss
                                  ? PlanTrainingStep(golden.config, options)
                                  : PlanForward(golden.config, options);
    HEADROOM_CHECK(step.ok(), step.error().message);
    step_ = std::make_unique<NativeStep>(std::move(*step));
    Result<HostArena> arena = HostArena::Create(step_->plan.size);
    HEADROOM_CHECK(arena.ok(), arena.error().message);
    arena_ = std::move(*arena);
    executor_ = std::make_unique<Executor>(step_->graph(), step_->plan, arena_.bytes());
    FillConstants(step_->model, *executor_);
    const Result<LoadedWeights> loaded = LoadWeights(golden.reader, step_->model, *executor_);
    HEADROOM_CHECK(loaded.ok(), loaded.error().message);
    HEADROOM_CHECK(loaded->initialised.empty(), "a weight that was not recorded");
    FillInputs();
    if (device != nullptr) StartOn(*device);
  }

  const NativeStep& step() const { return *step_; }
  StepScalars& scalars() { return scalars_; }

  double ForwardBackward() {
    float* loss = executor_->View(step_->model.loss).As<float>();
    *loss = 0;
    if (on_device_) {
      on_device_->Zero(step_->model.loss);
      on_device_->Run(Section::kMicroStep, scalars_);
      Fetch(step_->model.loss);
    } else {
      executor_->Run(graph::Phase::kForward, scalars_);
      executor_->Run(graph::Phase::kBackward, scalars_);
    }
    return static_cast<double>(*loss) / static_cast<double>(scalars_.targets);
  }
  void Forward() {
    scalars_.training = false;
    if (on_device_) return on_device_->Run(Section::kForward, scalars_);
    executor_->Run(graph::Phase::kForward, scalars_);
  }
  void Update() {
    if (on_device_) {
      on_device_->Run(Section::kOptimizer, scalars_);
    } else {
      executor_->Run(graph::Phase::kOptimizer, scalars_);
    }
    ++scalars_.step;
  }

  std::vector<double> Values(graph::TensorId id) const {
    Fetch(id);
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
        const std::vector<double> expected = Expected(golden_, "grad/" + part.name);
        if (Norm(expected) < 1e-6) continue;
        worst.Add(part.name, Between(Gradient(parameter, part), expected));
      }
    }
    return worst;
  }

 private:
  // Copies the persistent tensors and the batch.
  void StartOn(Device& device) {
    const Status allocated = device.Allocate(step_->plan.size);
    HEADROOM_CHECK(allocated.ok(), allocated.error().message);
    on_device_ = device.NewExecutor(step_->graph(), step_->plan);
    on_device_->UploadArena(arena_.bytes().data(), step_->plan.shared);
    for (size_t i = 0; i < step_->graph().tensors().size(); ++i) {
      const auto id = static_cast<graph::TensorId>(i);
      if (step_->graph().tensor(id).role != graph::Role::kInput) continue;
      on_device_->Upload(id, executor_->View(id).data);
    }
  }
  // Into the host's arena.
  void Fetch(graph::TensorId id) const {
    if (on_device_) on_device_->Download(id, executor_->View(id).data);
  }
  void FillInputs() {
    for (size_t i = 0; i < step_->graph().tensors().size(); ++i) {
      const graph::Tensor& tensor = step_->graph().tensors()[i];
      if (tensor.role != graph::Role::kInput) continue;
      auto* values = executor_->View(static_cast<graph::TensorId>(i)).As<int32_t>();
      if (tensor.name == "decoder_lengths") {
        std::fill_n(values, 2, 10);
        continue;
      }
      const TensorEntry* entry = golden_.reader.Find("input/" + tensor.name);
      HEADROOM_CHECK(entry != nullptr, "an input that was not recorded: " + tensor.name);
      std::memcpy(values, entry->bytes.data(), entry->bytes.size());
      if (tensor.name != "labels") continue;
      scalars_.targets = static_cast<float>(std::count_if(
          values, values + tensor.shape.NumElements(), [](int32_t value) { return value >= 0; }));
    }
  }

  const Golden& golden_;
  std::unique_ptr<NativeStep> step_;
  HostArena arena_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<DeviceExecutor> on_device_;
  StepScalars scalars_;
};

}  // namespace

const std::vector<std::string>& GoldenNames() {
  static const std::vector<std::string> names = {"bert_classification",
                                                 "bert_masked_lm",
                                                 "roberta_classification",
                                                 "roberta_masked_lm",
                                                 "gpt2",
                                                 "llama",
                                                 "llama3",
                                                 "qwen2",
                                                 "bart",
                                                 "marian",
                                                 "mbart",
                                                 "pegasus"};
  return names;
}

Result<Golden> ReadGolden(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path json = folder / (name + ".json");
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(json));
  HEADROOM_ASSIGN_OR_RETURN(ModelConfig config, ModelConfig::FromJson(text, json.string()));
  HEADROOM_ASSIGN_OR_RETURN(SafetensorsReader reader,
                            SafetensorsReader::Open(folder / (name + ".safetensors")));
  const std::optional<Task> task = ParseTask(config.String("golden_task"));
  if (!task) return Error::BadInput(json.string() + ": a golden_task without a name");
  return Golden{name, std::move(config), *task, std::move(reader)};
}

NativeOptions GoldenOptions(const Golden& golden) {
  NativeOptions options;
  options.model.task = golden.task;
  options.model.rows = {.batch = 2, .sequence = 12};
  options.model.target_sequence = golden.task == Task::kSeq2SeqLm ? 10 : 0;
  options.optimizer.weight_decay = 0.01F;
  return options;
}

void Worst::Add(const std::string& of, const Difference& other) {
  difference.cosine = std::min(difference.cosine, other.cosine);
  if (other.error < difference.error) return;
  difference.error = other.error;
  name = of;
}

GradientErrors LossAndGradients(const Golden& golden, NativeOptions options, Device* device) {
  Replay run(golden, options, device);
  const double loss = LossError(run.ForwardBackward(), Expected(golden, "output/loss")[0]);
  return {loss, run.Gradients()};
}

double LogitsError(const Golden& golden, Device* device) {
  const bool classifier = golden.task == Task::kSequenceClassification;
  NativeOptions options = GoldenOptions(golden);
  options.model.head = classifier ? Head::kLoss : Head::kNextToken;
  Replay run(golden, options, device);
  run.Forward();
  return Between(run.Values(run.step().model.logits), Expected(golden, "output/logits")).error;
}

double HiddenError(const Golden& golden, Device* device) {
  NativeOptions options = GoldenOptions(golden);
  options.model.head = Head::kHidden;
  Replay run(golden, options, device);
  run.Forward();
  std::vector<double> got = run.Values(run.step().model.hidden);
  std::vector<double> expected = Expected(golden, "output/hidden");
  if (golden.task != Task::kSeq2SeqLm) {
    constexpr std::ptrdiff_t kPadding = 5 * 16;  // of the second sequence
    got.erase(got.end() - kPadding, got.end());
    expected.erase(expected.end() - kPadding, expected.end());
  }
  return Between(got, expected).error;
}

SmoothedErrors LabelSmoothingErrors(const Golden& golden, Device* device) {
  NativeOptions options = GoldenOptions(golden);
  options.model.label_smoothing = 0.1F;
  Replay run(golden, options, device);
  const double loss = LossError(run.ForwardBackward(), Expected(golden, "output/smoothed_loss")[0]);
  const auto tables = run.step().graph().parameters();
  const auto table = std::find_if(tables.begin(), tables.end(),
                                  [](const graph::Parameter& p) { return p.embedding; });
  const Difference difference =
      Between(run.Values(table->gradient), Expected(golden, "output/smoothed_gradient"));
  return {loss, difference.error};
}

double TenLossesError(const Golden& golden, Device* device) {
  Replay run(golden, GoldenOptions(golden), device);
  run.scalars().learning_rate = 1e-3F;
  run.scalars().max_grad_norm = 1.0F;
  double worst = 0;
  for (const double expected : Expected(golden, "output/losses")) {
    worst = std::max(worst, LossError(run.ForwardBackward(), expected));
    run.Update();
  }
  return worst;
}

}  // namespace headroom::engine
