// SPDX-License-Identifier: Apache-2.0
//
// headroom train: the plan, then the run that keeps it.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/format.h"
#include "command.h"
#include "device.h"
#include "engine/budget.h"
#include "engine/cuda/outside.h"
#include "engine/data/batches.h"
#include "interrupt.h"
#include "make_native.h"
#include "output.h"
#include "report/json.h"
#include "report/plan_text.h"
#include "report/train_report.h"
#include "resident_memory.h"
#include "train_data.h"
#include "train_memory.h"
#include "train_options.h"
#include "train_progress.h"

namespace headroom::cli {
namespace {

using engine::Trainer;

// What a GPU holds of this process beside the arena.
Bytes OutsideArena() {
  Bytes sum;
  for (const ContextPart& part : engine::cuda::OutsideArena()) sum += part.bytes;
  return sum;
}

std::string Joined(const std::vector<std::string>& changes) {
  std::string text;
  for (const std::string& change : changes) text += (text.empty() ? "" : ", ") + change;
  return text;
}

std::string BudgetLine(const engine::BudgetPlan& plan, Bytes budget) {
  const std::string changes = Joined(plan.changes);
  if (changes.empty()) return Format("inside the budget of {} as asked", FormatBytes(budget));
  return Format("{}: the cheapest inside the budget of {}{}, about {:.0f} % more time", changes,
                FormatBytes(budget), plan.options.deterministic ? " that keeps every bit" : "",
                100 * plan.cost);
}

// `outside` lies beside each arena.
std::string OverBudget(const engine::BudgetAnswer& answer, Bytes budget, Bytes outside) {
  const Bytes least = answer.smallest.arena + outside;
  std::string message = Format("does not fit {}: the least it can do with is {}",
                               FormatBytes(budget), FormatBytes(least));
  if (answer.otherwise && answer.otherwise->arena < answer.smallest.arena) {
    message = Format(
        "does not fit {} with every bit kept: the least is {}, {} too much; {} without "
        "--deterministic would need {}",
        FormatBytes(budget), FormatBytes(least), FormatBytes(least - budget),
        Joined(answer.otherwise->changes), FormatBytes(answer.otherwise->arena + outside));
  }
  for (const auto& [flag, arena] : answer.other) {
    message += Format("; {} would need {}", flag, FormatBytes(arena + outside));
  }
  return message;
}

TrainSummary SummaryOf(const engine::TrainResult& result, const Plan& native,
                       const Trainer& trainer, const ProcessGrowth& growth,
                       const std::optional<DeviceLadder>& ladder) {
  TrainSummary summary;
  summary.steps = result.steps;
  summary.max_steps = trainer.max_steps();
  summary.epochs = result.epochs;
  summary.train_runtime = result.train_runtime;
  summary.samples_per_second = result.train_samples_per_second;
  summary.tokens_per_second = result.train_tokens_per_second;
  summary.steps_per_second = result.train_steps_per_second;
  summary.train_loss = result.train_loss;
  if (result.evaluation) {
    summary.eval_loss = result.evaluation->loss;
    summary.eval_accuracy = result.evaluation->accuracy;
    summary.eval_runtime = result.evaluation->seconds;
  }
  summary.clipped_share = result.clipped_share;
  summary.skipped_steps = result.skipped_steps;
  summary.waiting_share = result.waiting_share;
  summary.interrupted = result.interrupted;
  summary.saved = result.saved.string();
  summary.planned = native.report.allocated;
  summary.arena = Bytes(static_cast<int64_t>(trainer.plan().arena().size()));
  summary.memory = ladder ? DeviceMemory(native.ledger, *ladder) : TrainMemory(trainer, growth);
  return summary;
}

// Beside each other: what was given, what the data has, what the model writes.
std::string SamplesText(const Trainer& trainer, const engine::Tokenizer& tokenizer,
                        const TextStyle& style) {
  std::string out;
  const bool both = trainer.options().task == Task::kSeq2SeqLm;
  for (const Trainer::Sample& sample : trainer.Samples()) {
    std::vector<int32_t> expected = sample.expected;
    std::erase_if(expected, [](int32_t id) { return id < 0; });
    out +=
        '\n' + Paragraph(style, both ? "  source  " : "  text    ", tokenizer.Decode(sample.given));
    out += Paragraph(style, both ? "  target  " : "  goes on ", tokenizer.Decode(expected));
    out += Paragraph(style, "  model   ", tokenizer.Decode(sample.written));
  }
  return out;
}

ExitCode Finish(const TrainCommand& command, const engine::TrainResult& result, const Plan& native,
                const Trainer& trainer, const ProcessGrowth& growth,
                const std::optional<DeviceLadder>& ladder, const TrainProgress& progress,
                const TextStyle& style) {
  const TrainSummary summary = SummaryOf(result, native, trainer, growth, ladder);
  const ExitCode code = result.interrupted ? ExitCode::kInterrupted : ExitCode::kOk;
  if (!command.html.empty()) {
    std::vector<TrainCurvePoint> curve;
    for (const engine::StepReport& step : progress.steps()) {
      curve.push_back({step.step, step.loss, step.learning_rate, step.grad_norm, step.seconds});
    }
    std::vector<TrainEvalPoint> evaluations;
    for (const engine::EvalReport& evaluation : progress.evaluations()) {
      evaluations.push_back({evaluation.step, evaluation.loss});
    }
    const ReportPage page =
        TrainPage(native.report, native.ledger, summary, curve, evaluations, Generator());
    if (const Status status = WriteFile(command.html, HtmlReport(page)); !status.ok()) {
      return Fail("train", status.error());
    }
  }
  return Print(command.json ? TrainJson(native.report, summary) : TrainText(summary, style), code);
}

// What would stop the run later: a folder that cannot be written, more memory than is free.
Status CheckMachine(const TrainCommand& command, Bytes arena) {
  const std::filesystem::path& folder = command.train.output_dir;
  std::error_code failure;
  if (!folder.empty()) {
    std::filesystem::create_directories(folder, failure);
    if (failure || access(folder.c_str(), W_OK) != 0) {
      return Error::BadInput(Format("--output-dir {}: cannot be written", folder.string()));
    }
  }
  const std::optional<Bytes> available = AvailableMemory();
  if (!available || arena <= *available) return {};
  return Error::BadInput(
      Format("the arena of {} is more than the {} that this machine has free: add --memory-budget "
             "{:.1f}GiB",
             FormatBytes(arena), FormatBytes(*available), 0.9 * available->gib()));
}

std::string NewlyInitialised(const std::vector<std::string>& names) {
  std::string line = "not in the checkpoint, and initialised: " + names.front();
  if (names.size() > 1) line += Format(" and {} more", names.size() - 1);
  return line;
}

// The checkpoint, the newest one of a folder of checkpoints, or the newest of --output-dir.
Result<std::filesystem::path> CheckpointOf(const TrainCommand& command) {
  const std::filesystem::path& named = *command.resume;
  std::error_code ignored;
  if (std::filesystem::exists(named / "trainer_state.json", ignored)) return named;
  const std::filesystem::path& folder = named.empty() ? command.train.output_dir : named;
  if (auto last = engine::LastCheckpoint(folder)) return std::move(*last);
  return Error::BadInput(
      Format("{} has no checkpoint to resume from: leave out --resume-from-checkpoint to begin",
             folder.string()));
}

ExitCode Train(TrainCommand command, const TextStyle& style) {
  const DeviceName where = command.device.value_or(DefaultDevice());
  command.train.cuda = where.cuda;
  Result<TrainInputs> inputs = ReadTrainInputs(command);
  if (!inputs.ok()) return Fail("train", inputs.error());
  for (const std::string& warning : command.warnings) Warn("train", warning);
  std::unique_ptr<engine::Device> device;  // outlives the trainer
  Result<Trainer> trainer = Trainer::Create(inputs->config, command.train, std::move(inputs->data));
  if (!trainer.ok()) return Fail("train", trainer.error());
  if (command.memory_budget) {
    // On a GPU the process's figure is meant, which the context is part of.
    const Bytes outside = where.cuda ? OutsideArena() : Bytes(0);
    const Result<engine::BudgetAnswer> answer =
        trainer->KeepBudget(std::max(*command.memory_budget - outside, Bytes(0)));
    if (!answer.ok()) return Fail("train", answer.error());
    if (!answer->cheapest) {
      Warn("train", OverBudget(*answer, *command.memory_budget, outside));
      return ExitCode::kDoesNotFit;
    }
    inputs->assumptions.insert(inputs->assumptions.begin(),
                               BudgetLine(*answer->cheapest, *command.memory_budget));
  }
  const Plan native = MakeNativeReport(inputs->name, trainer->plan().largest(), trainer->options(),
                                       trainer->plan().arena_size(), inputs->assumptions);
  const PlanDetail detail = command.by_module ? PlanDetail::kModules : PlanDetail::kSummary;
  if (command.dry_run) {
    return Print(command.json ? PlanJson(native.report) : PlanText(native.report, detail, style));
  }
  std::optional<DeviceLadder> ladder;  // on a GPU
  if (where.cuda) {
    ladder.emplace(where.index);
    ladder->Read("before");
    auto opened = OpenCuda(where.index, command.train.precision == Precision::kTf32);
    if (!opened.ok()) return Fail("train", opened.error());
    device = std::move(*opened);
    ladder->Read("context, cuBLAS");
  }
  if (!command.json) Print(PlanText(native.report, detail, style) + "\n");

  if (const Status status = CheckMachine(command, where.cuda ? trainer->plan().largest().plan.shared
                                                             : trainer->plan().arena_size());
      !status.ok()) {
    return Fail("train", status.error());
  }
  Trainer::Origin origin{
      .weights = inputs->weights, .files = inputs->files, .device = device.get()};
  if (command.resume) {
    const Result<std::filesystem::path> checkpoint = CheckpointOf(command);
    if (!checkpoint.ok()) return Fail("train", checkpoint.error());
    origin.checkpoint = *checkpoint;
  }
  const ProcessGrowth growth;
  if (const Status status = trainer->Start(origin); !status.ok()) {
    return Fail("train", status.error());
  }
  if (ladder) ladder->Read("arena");
  const InterruptScope scope;
  Result<TrainProgress> progress =
      TrainProgress::Create({.max_steps = trainer->max_steps(),
                             .logging_steps = command.train.logging_steps,
                             .arena = trainer->plan().arena_size(),
                             .to_stderr = command.json,
                             .log = command.log,
                             .continues = command.resume.has_value()});
  if (!progress.ok()) return Fail("train", progress.error());
  if (!trainer->newly_initialised().empty()) {
    Warn("train", NewlyInitialised(trainer->newly_initialised()));
  }
  if (trainer->other_algorithms()) Warn("train", *trainer->other_algorithms());
  const Result<engine::TrainResult> result = trainer->Run(*progress);
  if (!result.ok()) return Fail("train", result.error());
  if (ladder) {
    ladder->Read("trained");
    if (!command.json) Print("\n" + device->name() + ", this process by NVML\n" + ladder->Text());
  }
  if (command.train.samples > 0 && inputs->tokenizer && !result->interrupted && !command.json) {
    Print(SamplesText(*trainer, *inputs->tokenizer, style));
  }
  return Finish(command, *result, native, *trainer, growth, ladder, *progress, style);
}

}  // namespace

ExitCode RunTrain(std::span<const std::string> words) {
  const Result<Arguments> arguments = ParseArguments(TrainSyntax(), words);
  if (!arguments.ok()) return Fail("train", arguments.error());
  if (arguments->wants_help()) return Print(HelpText(TrainSyntax()));
  const Result<TextStyle> style = StyleOf(*arguments);
  if (!style.ok()) return Fail("train", style.error());
  Result<TrainCommand> command = ReadTrainCommand(*arguments);
  if (!command.ok()) return Fail("train", command.error());
  return Train(std::move(*command), *style);
}

}  // namespace headroom::cli
