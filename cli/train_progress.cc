// SPDX-License-Identifier: Apache-2.0
#include "train_progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <system_error>

#include "base/format.h"
#include "interrupt.h"
#include "output.h"
#include "report/train_report.h"
#include "resident_memory.h"

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

size_t WidthOf(int descriptor) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// A part of the status line, and how soon it is left out where all have no room: the highest first.
struct Part {
  std::string text;
  int dispensable = 0;
};

std::string Joined(std::vector<Part> parts, size_t width) {
  const auto join = [&] {
    std::string line;
    for (const Part& part : parts) line += (line.empty() ? "" : "  ") + part.text;
    return line;
  };
  std::string line = join();
  while (line.size() > width && parts.size() > 1) {
    parts.erase(std::ranges::max_element(parts, {}, &Part::dispensable));
    line = join();
  }
  return line;
}

}  // namespace

Result<TrainProgress> TrainProgress::Create(Options options) {
  TrainProgress progress(std::move(options));
  progress.descriptor_ = progress.options_.to_stderr ? STDERR_FILENO : STDOUT_FILENO;
  progress.terminal_ = isatty(progress.descriptor_) != 0;
  if (progress.options_.log.empty()) return progress;
  std::error_code ignored;
  const bool goes_on = progress.options_.continues &&
                       std::filesystem::file_size(progress.options_.log, ignored) > 0 && !ignored;
  progress.log_.open(progress.options_.log, goes_on ? std::ios::app : std::ios::trunc);
  if (!progress.log_) {
    return Error::BadInput(Format("--log {}: cannot be written", progress.options_.log.string()));
  }
  if (progress.options_.log.extension() == ".csv" && !goes_on) {
    progress.log_ << "step,epoch,loss,learning_rate,grad_norm,clipped,skipped,loss_scale,samples,"
                     "tokens,seconds,resident\n";
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
  std::vector<Part> parts = {
      {Format("step {}/{}", report.step, options_.max_steps), 0},
      {"loss " + LossText(report.loss), 1},
      {Format("lr {:.3g}", report.learning_rate), 5},
      {Format("{:.4g} samples/s", static_cast<double>(report.samples) / report.seconds), 6},
      {Format("{:.4g} tokens/s", static_cast<double>(report.tokens) / report.seconds), 4}};
  if (report.skipped) parts.push_back({"skipped: overflow", 1});
  parts.push_back({FormatBytes(options_.arena), 3});
  parts.push_back({Format("{} left", Duration(left)), 2});
  // The last column stays free: some terminals break the line behind it.
  return Joined(std::move(parts),
                terminal_ ? WidthOf(descriptor_) - 1 : std::numeric_limits<size_t>::max());
}

void TrainProgress::Log(const engine::StepReport& report) {
  if (!log_.is_open()) return;
  const std::string loss = Number(report.loss);
  const std::string norm = Number(report.grad_norm);
  const int64_t resident = ResidentMemory().value_or(Bytes(0)).count();
  if (options_.log.extension() == ".csv") {
    log_ << Format("{},{},{},{},{},{},{},{},{},{},{},{}\n", report.step, report.epoch, loss,
                   report.learning_rate, norm, report.clipped ? 1 : 0, report.skipped ? 1 : 0,
                   report.loss_scale, report.samples, report.tokens, report.seconds, resident);
  } else {
    log_ << Format(
        "{{\"step\": {}, \"epoch\": {}, \"loss\": {}, \"learning_rate\": {}, \"grad_norm\": {}, "
        "\"clipped\": {}, \"skipped\": {}, \"loss_scale\": {}, \"samples\": {}, \"tokens\": {}, "
        "\"seconds\": {}, \"resident\": {}}}\n",
        report.step, report.epoch, loss, report.learning_rate, norm, report.clipped, report.skipped,
        report.loss_scale, report.samples, report.tokens, report.seconds, resident);
  }
  log_.flush();
  if (log_) return;
  log_.close();
  Say(Format("--log {}: cannot be written any more; the training goes on without it",
             options_.log.string()));
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
  std::string line = Format("step {}: validation loss {}", report.step, LossText(report.loss));
  if (report.accuracy) line += Format(", accuracy {:.4f}", *report.accuracy);
  Say(line + Format("  ({} examples in {:.1f} s)", report.samples, report.seconds));
}

void TrainProgress::OnSave(const std::filesystem::path& path) {
  Say(Format("saved {}", path.string()));
}

bool TrainProgress::ShouldStop() { return InterruptScope::Requested(); }

}  // namespace headroom::cli
