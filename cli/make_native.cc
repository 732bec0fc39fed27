// SPDX-License-Identifier: Apache-2.0
#include "make_native.h"

#include <utility>

#include "base/format.h"
#include "engine/cuda/outside.h"
#include "engine/step_set.h"
#include "graph/memory_plan.h"

namespace headroom::cli {

std::vector<std::string> NativeParts(const engine::TrainOptions& options) {
  std::string batch =
      Format("batch {} x {} tokens", options.per_device_train_batch_size, options.sequence_length);
  if (options.target_sequence_length > 0) {
    batch += Format(" to {}", options.target_sequence_length);
  }
  std::vector<std::string> parts = {std::string(Name(options.task)), std::move(batch)};
  if (options.gradient_accumulation_steps > 1) {
    parts.push_back(Format("accumulation {}", options.gradient_accumulation_steps));
  }
  parts.push_back(std::string(Name(options.precision)) + (options.lean ? " lean" : ""));
  parts.emplace_back(OptimName(options.optimizer));
  if (options.recompute != graph::Recompute::kNone) {
    parts.push_back(Format("recompute {}", Name(options.recompute)));
  }
  parts.emplace_back("native engine");
  return parts;
}

Result<engine::TrainOptions> NativeRecipe(const Recipe& recipe, std::string_view flag) {
  const auto refuse = [&](std::string_view what) {
    return Error::Unsupported(Format("the native engine has no {}: leave out {}", what, flag));
  };
  if (recipe.driver == Driver::kGenerate) return refuse("generation");
  if (recipe.lora) return refuse("LoRA");
  if (recipe.quantization.kind != Quantization::Kind::kNone) return refuse("quantised weights");
  if (recipe.sft_trainer) return refuse("SFTTrainer");
  if (recipe.parallel != Parallel{}) return refuse("several GPUs");
  engine::TrainOptions options;
  options.task = recipe.task;
  options.per_device_train_batch_size = recipe.per_device_train_batch_size;
  options.gradient_accumulation_steps = recipe.gradient_accumulation_steps;
  options.sequence_length = recipe.sequence_length;
  options.precision = recipe.precision;
  options.max_grad_norm = recipe.max_grad_norm;
  if (recipe.task == Task::kSeq2SeqLm) {
    options.target_sequence_length =
        recipe.target_sequence_length > 0 ? recipe.target_sequence_length : recipe.sequence_length;
  }
  if (recipe.gradient_checkpointing) options.recompute = graph::Recompute::kBlock;
  options.lean = recipe.weights_dtype && IsHalf(*recipe.weights_dtype);
  if (options.lean && options.precision != Precision::kBf16) {
    return refuse("16-bit weights but with --bf16");
  }
  switch (recipe.optim) {
    case Optim::kAdamWTorch:
    case Optim::kAdamWTorchFused:
      return options;
    case Optim::kAdam:
      options.optimizer.kind = graph::OptimizerKind::kAdam;
      return options;
    case Optim::kSgd:
      options.optimizer.kind = graph::OptimizerKind::kSgd;
      return options;
    case Optim::kAdamW8bit:
      options.optimizer.eight_bit = true;
      return options;
    default:
      return refuse(Name(recipe.optim));
  }
}

std::vector<std::string> NativeAssumptions(const Decided& decided) {
  std::vector<std::string> assumptions = decided.assumptions;
  std::erase_if(assumptions, [](const std::string& line) {
    return line.starts_with("CUDA context") || line.starts_with("TrainingArguments' defaults");
  });
  return assumptions;
}

namespace {

// What the precision means for what is kept: "bf16: weights and activations in bfloat16, …".
std::string StorageLine(const engine::TrainOptions& options) {
  const bool accumulates = options.gradient_accumulation_steps > 1;
  const bool bf16 = options.precision == Precision::kBf16;
  std::string text(Name(options.precision));
  if (bf16 || options.precision == Precision::kFp16) {
    const char* half = bf16 ? "bfloat16" : "float16";
    text += Format("{}: weights and activations in {}, ", options.lean ? " lean" : "", half);
    if (!options.lean) {
      text += "float32 masters of the weights";
    } else {
      text += options.optimizer.stochastic_rounding ? "no masters but stochastic rounding"
                                                    : "no masters, rounded to nearest";
    }
    text += Format(", gradients in {}", accumulates ? "float32" : half);
  } else {
    text += ": weights, activations and gradients in float32";
    if (options.precision == Precision::kTf32)
      text += ", rounded to 10 bits of mantissa in products";
  }
  const graph::OptimizerOptions& optimizer = options.optimizer;
  const bool stateless = optimizer.kind == graph::OptimizerKind::kSgd && optimizer.momentum == 0;
  if (!stateless)
    text += Format(", optimizer states in {}", optimizer.eight_bit ? "8 bits" : "float32");
  if (options.precision == Precision::kFp16) text += "; the loss is scaled";
  return text;
}

std::string OutsideLine() {
  std::string text;
  for (const ContextPart& part : engine::cuda::OutsideArena()) {
    text += Format("{}{} {}", text.empty() ? "beside the arena: " : ", ", part.name,
                   FormatBytes(part.bytes));
  }
  return text;
}

}  // namespace

int64_t ParametersOf(const graph::Graph& graph) {
  int64_t parameters = 0;
  for (const graph::Parameter& parameter : graph.parameters()) {
    parameters += graph.tensor(parameter.weight).shape.NumElements();
  }
  return parameters;
}

Plan MakeNativeReport(const std::string& model, const engine::NativeStep& step,
                      const engine::TrainOptions& options, Bytes arena,
                      std::vector<std::string> assumptions) {
  Plan result;
  result.ledger = LedgerOf(step.graph(), step.plan);
  // Evaluation may need more than training.
  result.ledger.ChangeReserved(arena - step.plan.size);
  PlanHeader header;
  header.model = model;
  header.recipe = NativeParts(options);
  header.parameters = ParametersOf(step.graph());
  header.trainable = header.parameters;
  header.assumptions = std::move(assumptions);
  if (options.cuda) {
    header.assumptions.insert(header.assumptions.begin(), OutsideLine());
    result.ledger.SetContext(engine::cuda::OutsideArena());
  }
  header.assumptions.insert(header.assumptions.begin(), StorageLine(options));
  header.native =
      NativePlan{.device = options.cuda ? "cuda" : "cpu", .lower_bound = step.plan.lower_bound};
  result.report = BuildPlanReport(result.ledger, std::move(header));
  return result;
}

Result<Plan> MakeNativePlan(const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options.model));
  const Decided decided = Decide(options, model.config);
  HEADROOM_ASSIGN_OR_RETURN(engine::TrainOptions train,
                            NativeRecipe(decided.recipe, "--engine native"));
  train.cuda = options.native_cuda;
  Result<engine::NativeStep> step = PlanTrainingStep(
      model.config, NativeOptionsOf(train, train.sequence_length, train.target_sequence_length));
  if (!step.ok()) return step.error().In(model.origin);
  Plan plan =
      MakeNativeReport(model.name, *step, train, step->plan.size, NativeAssumptions(decided));
  plan.report.header.warnings = decided.warnings;
  if (const std::optional<Budget> budget = BudgetOf(options)) {
    const Bytes cap = budget->memory - plan.ledger.context();
    plan.report.header.verdict = Verdict{.fits = step->plan.size <= cap,
                                         .tight = false,
                                         .gpu = budget->gpu,
                                         .memory = budget->memory,
                                         .cap = cap,
                                         .needed = step->plan.size,
                                         .failure = std::nullopt};
  }
  return plan;
}

}  // namespace headroom::cli
