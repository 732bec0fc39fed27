// SPDX-License-Identifier: Apache-2.0
#include "watch_options.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/format.h"
#include "output.h"

namespace headroom::cli {
namespace {

// Memory of a training step comes and goes within milliseconds; the driver answers in about one.
constexpr double kCommandInterval = 0.05;
constexpr double kShortest = 0.001;
constexpr double kLongest = 3600;

constexpr Flag kWatchFlags[] = {
    {"--pid", Takes::kValue, "PID,...", "only these processes; ends when they have"},
    {"--gpu-index", Takes::kValue, "N,...", "only these GPUs, numbered as nvidia-smi does"},
    {"--interval", Takes::kValue, "SECONDS",
     "between two looks (default 1; 0.05 while a command runs)"},
    {"--count", Takes::kValue, "N", "stop after so many looks (default: until Ctrl-C)"},
};
constexpr Flag kOutputFlags[] = {
    {"--json", Takes::kValue, "FILE", "write the recording (docs/watch_format.md)"},
    {"--html", Takes::kValue, "FILE", "write the recording as a page for a browser"},
    kColorFlag,
};
constexpr FlagGroup kGroups[] = {{"What is watched", kWatchFlags}, {"Output", kOutputFlags}};
constexpr Syntax kSyntax = {
    .command = "watch",
    .summary =
        "Shows the device memory of every GPU and of every process on it, as nvidia-smi does: "
        "refreshed in place on a terminal, a JSON object per line in a pipe. With a command "
        "behind --, runs it, watches it and all that it starts, and says on standard error what "
        "it held: idle, context, peak, end. The command's exit code is returned. Needs the "
        "NVIDIA driver, and nothing else.",
    .positional = "",
    .positional_help = "",
    .tail = "-- COMMAND ...",
    .groups = kGroups,
    .examples =
        "  headroom watch\n"
        "  headroom watch --gpu-index 0 --interval 0.2 | jq .gpus[0].used\n"
        "  headroom watch --html run.html -- python train.py --bf16\n",
};

template <typename T>
Result<std::vector<T>> ReadList(std::string_view flag, const std::string& text, T most,
                                std::string_view example) {
  std::vector<T> numbers;
  std::string_view rest = text;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find(','));
    T number{};
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (failure != std::errc() || end != part.data() + part.size() || number < 0 || number > most) {
      return Error::BadInput(
          Format("{} {}: not a list of numbers: write {} {}", flag, text, flag, example));
    }
    numbers.push_back(number);
    if (part.size() == rest.size()) return numbers;
    rest.remove_prefix(part.size() + 1);
  }
}

Result<double> ReadInterval(const std::string& text) {
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) ||
      seconds < kShortest || seconds > kLongest) {
    return Error::BadInput(Format("--interval {}: must be seconds from {} to {:.0f}: write 0.5",
                                  text, kShortest, kLongest));
  }
  return seconds;
}

Result<int64_t> ReadCount(const std::string& text) {
  int64_t count = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (failure != std::errc() || end != text.data() + text.size() || count < 1) {
    return Error::BadInput(
        Format("--count {}: must be a whole number of at least 1: write 10", text));
  }
  return count;
}

}  // namespace

const Syntax& WatchSyntax() { return kSyntax; }

Result<WatchOptions> ReadWatchOptions(const Arguments& arguments,
                                      std::span<const std::string> command) {
  WatchOptions options;
  options.command.assign(command.begin(), command.end());
  if (!command.empty()) {
    options.interval = kCommandInterval;
    for (const std::string_view flag : {"--pid", "--count"}) {
      if (!arguments.Has(flag)) continue;
      return Error::BadInput(Format(
          "{} has no meaning with a command: its own processes are watched until it ends", flag));
    }
  }
  if (const auto text = arguments.Value("--pid")) {
    constexpr uint32_t kMost = std::numeric_limits<int32_t>::max();
    HEADROOM_ASSIGN_OR_RETURN(options.pids,
                              ReadList<uint32_t>("--pid", *text, kMost, "1234 or 1234,1235"));
  }
  if (const auto text = arguments.Value("--gpu-index")) {
    constexpr int kMost = 4095;
    HEADROOM_ASSIGN_OR_RETURN(options.gpus, ReadList<int>("--gpu-index", *text, kMost, "0 or 0,1"));
  }
  if (const auto text = arguments.Value("--interval")) {
    HEADROOM_ASSIGN_OR_RETURN(options.interval, ReadInterval(*text));
  }
  if (const auto text = arguments.Value("--count")) {
    HEADROOM_ASSIGN_OR_RETURN(options.count, ReadCount(*text));
  }
  options.json_path = arguments.Value("--json").value_or("");
  options.html_path = arguments.Value("--html").value_or("");
  return options;
}

Result<std::vector<observe::GpuMemory>> ReadCards(const observe::Nvml& nvml,
                                                  const WatchOptions& options) {
  std::vector<observe::GpuMemory> cards;
  if (options.gpus.empty()) {
    HEADROOM_ASSIGN_OR_RETURN(cards, nvml.ReadAll());
    if (cards.empty()) return Error::BadInput("the NVIDIA driver sees no GPU here");
    return cards;
  }
  for (const int gpu : options.gpus) {
    HEADROOM_ASSIGN_OR_RETURN(observe::GpuMemory card, nvml.Read(gpu));
    cards.push_back(std::move(card));
  }
  return cards;
}

}  // namespace headroom::cli
