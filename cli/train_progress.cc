// SPDX-License-Identifier: Apache-2.0
#include "train_progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "interrupt.h"
#include "output.h"

namespace headroom::cli {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// "1:05:09", "2:31"
std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::lround(std::min(seconds, 1e9)));
  if (whole >= 3600) {
    return Format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return Format("{}:{:02}", whole / 60, whole % 60);
}

// JSON has no NaN: a step that was skipped has no norm.
std::string Number(double value) { return std::isfinite(value) ? Format("{}", value) : "null"; }

}  // namespace

Result<TrainProgress> TrainProgress::Create(Options options) {
  TrainProgress progress(std::move(options));
  progress.descriptor_ = progress.options_.to_stderr ? STDERR_FILENO : STDOUT_FILENO;
  progress.terminal_ = isatty(progress.descriptor_) != 0;
  if (progress.options_.log.empty()) return progress;
  progress.log_.open(progress.options_.log);
  if (!progress.log_) {
    return Error::BadInput(Format("--log {}: cannot be written", progress.options_.log.string()));
  }
  if (progress.options_.log.extension() == ".csv") {
    progress.log_ << "step,epoch,loss,learning_rate,grad_norm,clipped,skipped,loss_scale,samples,"
                     "tokens,seconds\n";
  }
  return progress;
}

void TrainProgress::Say(const std::string& line) {
  Clear();
  // Who reads no more does not end the training.
  static_cast<void>(Write(descriptor_, line + '\n'));
}

void TrainProgress::Clear() {
  if (!shown_) return;
  static_cast<void>(Write(descriptor_, "\r\x1b[K"));
  shown_ = false;
}

std::string TrainProgress::StatusLine(const engine::StepReport& report) const {
  const double each =
      SecondsSince(start_) / static_cast<double>(std::max<size_t>(steps_.size(), 1));
  const double left = each * static_cast<double>(options_.max_steps - report.step);
  std::string line = Format("step {}/{}  loss {:.4f}  lr {:.3g}  {:.4g} samples/s  {:.4g} tokens/s",
                            report.step, options_.max_steps, report.loss, report.learning_rate,
                            static_cast<double>(report.samples) / report.seconds,
                            static_cast<double>(report.tokens) / report.seconds);
  if (report.skipped) line += "  skipped: overflow";
  return line + Format("  {}  {} left", FormatBytes(options_.arena), Duration(left));
}

void TrainProgress::Log(const engine::StepReport& report) {
  if (!log_.is_open()) return;
  const std::string loss = Number(report.loss);
  const std::string norm = Number(report.grad_norm);
  if (options_.log.extension() == ".csv") {
    log_ << Format("{},{},{},{},{},{},{},{},{},{},{}\n", report.step, report.epoch, loss,
                   report.learning_rate, norm, report.clipped ? 1 : 0, report.skipped ? 1 : 0,
                   report.loss_scale, report.samples, report.tokens, report.seconds);
  } else {
    log_ << Format(
        "{{\"step\": {}, \"epoch\": {}, \"loss\": {}, \"learning_rate\": {}, \"grad_norm\": {}, "
        "\"clipped\": {}, \"skipped\": {}, \"loss_scale\": {}, \"samples\": {}, \"tokens\": {}, "
        "\"seconds\": {}}}\n",
        report.step, report.epoch, loss, report.learning_rate, norm, report.clipped, report.skipped,
        report.loss_scale, report.samples, report.tokens, report.seconds);
  }
  log_.flush();
}

void TrainProgress::OnStep(const engine::StepReport& report) {
  steps_.push_back(report);
  Log(report);
  const bool due = report.step % options_.logging_steps == 0 || report.step == 1 ||
                   report.step == options_.max_steps;
  if (!terminal_) {
    if (due) Say(StatusLine(report));
    return;
  }
  constexpr double kEvery = 0.1;
  if (SecondsSince(last_) < kEvery && report.step != options_.max_steps) return;
  last_ = Clock::now();
  static_cast<void>(Write(descriptor_, "\r" + StatusLine(report) + "\x1b[K"));
  shown_ = true;
}

void TrainProgress::OnEvaluate(const engine::EvalReport& report) {
  evaluations_.push_back(report);
  std::string line = Format("step {}: validation loss {:.4f}", report.step, report.loss);
  if (report.accuracy) line += Format(", accuracy {:.4f}", *report.accuracy);
  Say(line + Format("  ({} examples in {:.1f} s)", report.samples, report.seconds));
}

void TrainProgress::OnSave(const std::filesystem::path& path) {
  Say(Format("saved {}", path.string()));
}

bool TrainProgress::ShouldStop() { return InterruptScope::Requested(); }

}  // namespace headroom::cli
