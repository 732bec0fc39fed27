// SPDX-License-Identifier: Apache-2.0
//
// headroom watch: device memory as the driver tells it, live or of a command.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "arguments.h"
#include "base/file.h"
#include "base/format.h"
#include "child_process.h"
#include "command.h"
#include "observe/nvml.h"
#include "observe/process_table.h"
#include "observe/recording.h"
#include "output.h"
#include "watch_live.h"
#include "watch_options.h"
#include "watch_report.h"

namespace headroom::cli {
namespace {

using observe::GpuMemory;
using observe::Nvml;
using observe::ProcessTable;
using observe::Recorder;
using observe::Recording;
using Cards = std::vector<GpuMemory>;

// The driver takes back a process's memory some milliseconds after its end.
constexpr double kSettleSeconds = 0.5;
constexpr double kSettleInterval = 0.02;
// Below this a card counts as idle: the driver's own few pages.
constexpr Bytes kIdle = MiB(64);

double SecondsSince1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Status Save(const WatchOptions& options, const Recording& recording) {
  if (!options.json_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.json_path, observe::ToJson(recording)));
  }
  if (!options.html_path.empty()) {
    HEADROOM_RETURN_IF_ERROR(WriteFile(options.html_path, HtmlReport(RecordingPage(recording))));
  }
  return {};
}

// ---- Live ----

// On a terminal each look takes the place of the one before.
class Screen {
 public:
  explicit Screen(TextStyle style) : style_(style) { Measure(); }

  // What the window can show now: it may change its size. A line that it would break could not be
  // drawn over.
  const TextStyle& Measure() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 1) {
      style_.width = std::min<int>(size.ws_col, kWidest);
      rows_ = static_cast<size_t>(size.ws_row - 1);
    }
    return style_;
  }

  std::string Redraw(const std::string& text) {
    std::string out = lines_ > 0 ? Format("\x1b[{}A\x1b[J", lines_) : "";
    const auto total = static_cast<size_t>(std::ranges::count(text, '\n'));
    lines_ = std::min(total, rows_);
    // What has scrolled off could not be drawn over either.
    const bool cut = total > rows_;
    const size_t kept = cut ? lines_ - 1 : lines_;
    size_t end = 0;
    for (size_t i = 0; i < kept; ++i) end = text.find('\n', end) + 1;
    out += text.substr(0, end);
    if (cut) {
      out += Paint(style_, Colour::kDim, Shorten(style_, "(more below)", style_.width)) + '\n';
    }
    return out;
  }

 private:
  static constexpr int kWidest = 110;

  TextStyle style_;
  size_t rows_ = 24;
  size_t lines_ = 0;
};

bool AnyThere(const Cards& cards, const ProcessTable& table, const std::vector<uint32_t>& pids) {
  return std::ranges::any_of(pids, [&](uint32_t pid) {
    if (table.IsVisible(pid)) return true;
    const Cards flat = observe::Flatten(cards);
    return std::ranges::any_of(flat, [&](const GpuMemory& memory) {
      return std::ranges::find(memory.processes, pid, &observe::GpuProcess::pid) !=
             memory.processes.end();
    });
  });
}

// Looks until the count is reached, the watched processes have ended, somebody stops us or the
// reader goes.
Result<ExitCode> Live(const Nvml& nvml, const WatchOptions& options, const TextStyle& style) {
  const ProcessTable table;
  HEADROOM_ASSIGN_OR_RETURN(Cards cards, ReadCards(nvml, options));
  if (!options.pids.empty() && !AnyThere(cards, table, options.pids)) {
    return Error::BadInput(Format("--pid {}: no such process", fmt::join(options.pids, ",")));
  }
  const SignalGate gate;
  observe::WatchedIds ids(options.pids);
  Recorder recorder(cards, options.pids.empty() ? nullptr : &ids, table, false);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const double started = SecondsSince1970();
  const Stopwatch clock;
  Screen screen(style);
  for (int64_t looks = 1;; ++looks) {
    recorder.Add(clock.seconds(), cards);
    const std::string text =
        terminal ? screen.Redraw(CardsText(cards, table, options.pids, screen.Measure()))
                 : CardsJson(SecondsSince1970(), cards, table, options.pids);
    HEADROOM_ASSIGN_OR_RETURN(const bool read, Write(STDOUT_FILENO, text));
    if (!read || (options.count && looks >= *options.count)) break;
    // Looks keep their distance however long one takes.
    const double next = static_cast<double>(looks) * options.interval;
    bool stop = false;
    while (!stop && clock.seconds() < next) {
      const auto signal = gate.Wait(next - clock.seconds());
      stop = signal && AsksToStop(signal->number);
    }
    if (stop) break;
    HEADROOM_ASSIGN_OR_RETURN(cards, ReadCards(nvml, options));
    if (!options.pids.empty() && !AnyThere(cards, table, options.pids)) break;
  }
  recorder.Finish(clock.seconds(), cards);
  Recording recording = recorder.Take();
  recording.driver = nvml.driver_version();
  recording.started = started;
  HEADROOM_RETURN_IF_ERROR(Save(options, recording));
  return ExitCode::kOk;
}

// ---- A command ----

void WarnOfOthers(const Cards& before, const ProcessTable& table) {
  std::vector<int> gpus;
  const Cards flat = observe::Flatten(before, &gpus);
  for (size_t i = 0; i < flat.size(); ++i) {
    if (flat[i].processes.empty() || flat[i].used < kIdle) continue;
    std::vector<std::string> who;
    for (const observe::GpuProcess& process : flat[i].processes) {
      const std::string name = table.Name(process.pid);
      who.push_back(Format("{} (pid {}{})", name.empty() ? "not visible here" : name, process.pid,
                           process.bytes ? ", " + FormatMiB(*process.bytes) : ""));
    }
    Warn("watch", Format("GPU {} is not idle: {} used, by {}", gpus[i], FormatMiB(flat[i].used),
                         fmt::join(who, ", ")));
  }
}

// Reads until the command's processes are off the cards, or for half a second.
Result<Cards> Settled(const Nvml& nvml, const WatchOptions& options, observe::Watched& watched,
                      const SignalGate& gate) {
  const Stopwatch clock;
  while (true) {
    HEADROOM_ASSIGN_OR_RETURN(Cards cards, ReadCards(nvml, options));
    std::vector<uint32_t> listed;
    for (const GpuMemory& memory : observe::Flatten(cards)) {
      for (const observe::GpuProcess& process : memory.processes) listed.push_back(process.pid);
    }
    if (watched.Among(listed).empty() || clock.seconds() > kSettleSeconds) return cards;
    gate.Wait(kSettleInterval);
  }
}

// The recording; its exit code is that of the command.
Result<Recording> Record(const Nvml& nvml, const WatchOptions& options) {
  const ProcessTable table;
  HEADROOM_ASSIGN_OR_RETURN(const Cards before, ReadCards(nvml, options));
  WarnOfOthers(before, table);
  const SignalGate gate;
  const double started = SecondsSince1970();
  const Stopwatch clock;
  HEADROOM_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Start(options.command, gate));
  // Orphans of the command become our children, so its family is all that descends from us.
  observe::WatchedTree tree(static_cast<uint32_t>(::getpid()), table);
  Recorder recorder(before, &tree, table, true);
  std::optional<Error> failure;
  for (int64_t looks = 1; !child.HasEnded(); ++looks) {
    // A card that stops answering must not stop the command.
    if (const Result<Cards> cards = ReadCards(nvml, options); cards.ok()) {
      recorder.Add(clock.seconds(), *cards);
    } else if (!failure) {
      failure = cards.error();
    }
    const double next =
        std::max(static_cast<double>(looks) * options.interval, clock.seconds() + 0.0005);
    while (!child.HasEnded() && clock.seconds() < next) {
      if (const auto signal = gate.Wait(next - clock.seconds())) child.Forward(*signal);
    }
  }
  const double ended = clock.seconds();
  if (const Result<Cards> after = Settled(nvml, options, tree, gate); after.ok()) {
    recorder.Finish(ended, *after);
  }
  if (failure) Warn("watch", failure->message);
  Recording recording = recorder.Take();
  recording.command = options.command;
  recording.driver = nvml.driver_version();
  recording.started = started;
  recording.seconds = ended;
  recording.exit_code = child.exit_code();
  return recording;
}

Result<ExitCode> RunCommand(const Nvml& nvml, const WatchOptions& options, const TextStyle& style) {
  HEADROOM_ASSIGN_OR_RETURN(const Recording recording, Record(nvml, options));
  HEADROOM_RETURN_IF_ERROR(Write(STDERR_FILENO, '\n' + RecordingText(recording, style)));
  // The command's exit code is what a script around us waits for; a file that cannot be written
  // does not hide it.
  if (const Status saved = Save(options, recording); !saved.ok()) {
    Warn("watch", saved.error().message);
  }
  return static_cast<ExitCode>(*recording.exit_code);
}

Result<ExitCode> Watch(std::span<const std::string> words) {
  const auto dashes = std::ranges::find(words, "--");
  const std::span<const std::string> flags(words.begin(), dashes);
  std::span<const std::string> command;
  if (dashes != words.end()) command = std::span<const std::string>(dashes + 1, words.end());
  if (!flags.empty() && !flags.front().starts_with('-')) {
    return Error::BadInput(
        Format("unexpected argument \"{}\": to watch a command, write headroom watch -- {} ...",
               flags.front(), flags.front()));
  }
  HEADROOM_ASSIGN_OR_RETURN(const Arguments arguments, ParseArguments(WatchSyntax(), flags));
  if (arguments.wants_help()) return Print(HelpText(WatchSyntax()));
  if (dashes != words.end() && command.empty()) {
    return Error::BadInput("no command behind --: write headroom watch -- python train.py");
  }
  HEADROOM_ASSIGN_OR_RETURN(
      const TextStyle style,
      StyleOf(arguments, command.empty() ? STDOUT_FILENO : STDERR_FILENO, kFewestColumns));
  HEADROOM_ASSIGN_OR_RETURN(const WatchOptions options, ReadWatchOptions(arguments, command));
  HEADROOM_ASSIGN_OR_RETURN(const Nvml nvml, Nvml::Open());
  return command.empty() ? Live(nvml, options, style) : RunCommand(nvml, options, style);
}

}  // namespace

ExitCode RunWatch(std::span<const std::string> words) {
  const Result<ExitCode> code = Watch(words);
  return code.ok() ? *code : Fail("watch", code.error());
}

}  // namespace headroom::cli
