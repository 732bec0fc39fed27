// SPDX-License-Identifier: Apache-2.0
#include "report/train_report.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "report/json_parts.h"
#include "report/plan_page.h"
#include "report/sections.h"

namespace headroom {
namespace {

std::string Outcome(const TrainSummary& summary) {
  if (summary.interrupted) {
    return Format("Stopped after step {} of {}", summary.steps, summary.max_steps);
  }
  return Format("Trained {} steps ({:.2f} epochs)", Thousands(summary.steps), summary.epochs);
}

std::string Speed(const TrainSummary& summary) {
  return Format("{:.4g} samples/s, {:.4g} tokens/s, {:.4g} steps/s", summary.samples_per_second,
                summary.tokens_per_second, summary.steps_per_second);
}

std::string SizeCell(std::optional<Bytes> size) { return size ? MiBNumber(*size) : ""; }

std::string MemoryTable(const TrainSummary& summary, const TextStyle& style) {
  TextTable table({{"MiB", TextTable::Align::kLeft}, {"planned"}, {"measured"}});
  for (const TrainMemoryRow& row : summary.memory) {
    table.Add({row.name, SizeCell(row.planned), SizeCell(row.measured)});
  }
  return table.Text(style);
}

Json MeasuredJson(const TrainSummary& summary) {
  Json measured = Json::object();
  for (const TrainMemoryRow& row : summary.memory) {
    measured[row.key] = row.measured ? Json(row.measured->count()) : Json(nullptr);
  }
  return measured;
}

PageTable MemoryPage(const TrainSummary& summary) {
  PageTable table{.heading = "Memory, planned and measured",
                  .note =
                      "Measured: the pages of each part that the system counts as taken; of "
                      "the process, its growth since before the arena.",
                  .columns = {"part", "planned", "measured"},
                  .rows = {},
                  .totals = {}};
  const auto cell = [](std::optional<Bytes> size) { return size ? PageCell(*size) : PageCell(); };
  for (const TrainMemoryRow& row : summary.memory) {
    table.rows.push_back({row.name, cell(row.planned), cell(row.measured)});
  }
  return table;
}

}  // namespace

std::string LossText(double loss) {
  constexpr double kAstray = 1e5;
  if (std::isnan(loss)) return "not a number";
  return std::abs(loss) < kAstray ? Format("{:.4f}", loss) : Format("{:.4g}", loss);
}

std::string TrainText(const TrainSummary& summary, const TextStyle& style) {
  std::string out =
      Heading(style, Format("{} in {:.1f} s", Outcome(summary), summary.train_runtime));
  const auto line = [&](std::string_view name, const std::string& value) {
    out += Paragraph(style, Margin() + PadRight(name, 18), value);
  };
  line("speed", Speed(summary));
  line("training loss", LossText(summary.train_loss) + ", the mean over all steps");
  if (summary.eval_loss) {
    std::string value = LossText(*summary.eval_loss);
    if (summary.eval_accuracy) value += Format(", accuracy {:.4f}", *summary.eval_accuracy);
    line("validation loss", value);
  }
  line("clipped", Format("{} of the steps", Percent(summary.clipped_share)));
  if (summary.skipped_steps > 0) {
    line("skipped", Format("{} step{} whose gradients overflowed", summary.skipped_steps,
                           summary.skipped_steps == 1 ? "" : "s"));
  }
  line("waiting for data", Format("{} of the time", Percent(summary.waiting_share)));
  if (!summary.saved.empty()) line("saved", summary.saved);
  if (summary.memory.empty()) return out;
  return out + Heading(style, "Memory, planned and measured") + MemoryTable(summary, style);
}

std::string TrainJson(const PlanReport& plan, const TrainSummary& summary) {
  Json json = {{"schema", 1},
               {"model", plan.header.model},
               {"parameters", plan.header.parameters},
               {"global_step", summary.steps},
               {"epoch", summary.epochs},
               {"train_runtime", summary.train_runtime},
               {"train_samples_per_second", summary.samples_per_second},
               {"train_tokens_per_second", summary.tokens_per_second},
               {"train_steps_per_second", summary.steps_per_second},
               {"train_loss", summary.train_loss},
               {"eval_loss", nullptr},
               {"eval_accuracy", nullptr},
               {"clipped_share", summary.clipped_share},
               {"skipped_steps", summary.skipped_steps},
               {"waiting_share", summary.waiting_share},
               {"interrupted", summary.interrupted},
               {"saved", summary.saved.empty() ? Json(nullptr) : Json(summary.saved)},
               {"planned_bytes", summary.planned.count()},
               {"arena_bytes", summary.arena.count()},
               {"measured", MeasuredJson(summary)},
               {"peak", PeakJson(plan.peak)},
               {"phases", PhasesJson(plan)},
               {"assumptions", plan.header.assumptions}};
  if (summary.eval_loss) {
    json["eval_loss"] = *summary.eval_loss;
    json["eval_runtime"] = summary.eval_runtime;
  }
  if (summary.eval_accuracy) json["eval_accuracy"] = *summary.eval_accuracy;
  return Dump(json);
}

ReportPage TrainPage(const PlanReport& plan, const Ledger& ledger, const TrainSummary& summary,
                     const std::vector<TrainCurvePoint>& steps,
                     const std::vector<TrainEvalPoint>& evaluations, std::string generator) {
  ReportPage page = PlanPage(plan, ledger, std::move(generator));
  page.kind = "train";
  const Tone tone = summary.interrupted ? Tone::kWarning : Tone::kGood;
  page.summary.insert(page.summary.begin(), {tone, Format("{} in {:.1f} s: {}.", Outcome(summary),
                                                          summary.train_runtime, Speed(summary))});
  PageCurve loss{.heading = "Loss", .lines = {{.name = "training"}, {.name = "validation"}}};
  PageCurve rate{.heading = "Learning rate", .lines = {{.name = "learning rate"}}};
  PageCurve norm{.heading = "Gradient norm, before clipping", .lines = {{.name = "norm"}}};
  for (const TrainCurvePoint& point : steps) {
    const auto step = static_cast<double>(point.step);
    loss.lines[0].points.emplace_back(step, point.loss);
    rate.lines[0].points.emplace_back(step, point.learning_rate);
    norm.lines[0].points.emplace_back(step, point.grad_norm);
  }
  for (const TrainEvalPoint& point : evaluations) {
    loss.lines[1].points.emplace_back(static_cast<double>(point.step), point.loss);
  }
  if (evaluations.empty()) loss.lines.pop_back();
  page.curves = {std::move(loss), std::move(rate), std::move(norm)};
  if (!summary.memory.empty()) page.tables.insert(page.tables.begin(), MemoryPage(summary));
  return page;
}

}  // namespace headroom
