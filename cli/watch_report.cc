// SPDX-License-Identifier: Apache-2.0
#include "watch_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/format.h"
#include "output.h"
#include "report/chart_text.h"

namespace headroom::cli {
namespace {

using observe::DeviceLadder;
using observe::DeviceRecording;
using observe::DeviceSample;
using observe::OwnMatch;
using observe::Recording;

constexpr size_t kProcessesShown = 10;
// The page draws this many columns at most; more would only make it larger.
constexpr size_t kMostPageSamples = 4000;

// On one line: a script behind `sh -c` has several.
std::string CommandLine(const Recording& recording) {
  if (recording.command.empty()) return "device memory";
  std::string line = Format("{}", fmt::join(recording.command, " "));
  std::ranges::replace_if(
      line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

// "command", or "watched" where ids were given.
std::string OwnName(const Recording& recording) {
  return recording.command.empty() ? "watched" : "command";
}

std::string ExitWords(const Recording& recording) {
  if (!recording.exit_code) return "";
  return Format("exit code {}", *recording.exit_code);
}

// Those worth showing: where the watched held memory; all when nothing was watched.
std::vector<const DeviceRecording*> ShownDevices(const Recording& recording) {
  std::vector<const DeviceRecording*> shown;
  const bool watched = std::ranges::any_of(recording.devices, [](const DeviceRecording& device) {
    return device.match != OwnMatch::kNone;
  });
  for (const DeviceRecording& device : recording.devices) {
    if (device.samples.empty()) continue;
    if (device.match != OwnMatch::kNone || (!watched && recording.command.empty())) {
      shown.push_back(&device);
    }
  }
  return shown;
}

std::string DeviceWords(const DeviceRecording& device) {
  std::string text = Format("{}: {}, {}", device.Label(), device.name, FormatMiB(device.total));
  if (device.reserved) {
    text += Format(", {} reserved by the driver", FormatMiB(*device.reserved));
  }
  return text;
}

std::string MatchNote(OwnMatch match) {
  if (match == OwnMatch::kByAppearance) {
    return "The driver reports process ids of another namespace (a container): the processes that "
           "appeared on the card since are taken for the command's.";
  }
  if (match == OwnMatch::kByDifference) {
    return "The driver gives no figures per process here: taken is what the card holds beyond its "
           "idle level, other processes' changes included.";
  }
  return "";
}

// ---- Ladder ----

struct Rung {
  std::string name;
  std::optional<Bytes> own;
  Bytes used;
  std::optional<double> seconds;
};

std::vector<Rung> Rungs(const DeviceRecording& device) {
  const DeviceLadder ladder = LadderOf(device);
  const bool own = device.match != OwnMatch::kNone;
  std::vector<Rung> rungs = {{"idle", {}, ladder.idle, {}}};
  const auto add = [&](const char* name, const DeviceSample& sample) {
    rungs.push_back(
        {name, own ? std::optional(sample.own) : std::nullopt, sample.used, sample.seconds});
  };
  if (ladder.context) add("context", *ladder.context);
  add("peak", ladder.peak);
  add("end", ladder.end);
  rungs.push_back({"after", {}, ladder.after, {}});
  return rungs;
}

std::string LadderText(const Recording& recording, const DeviceRecording& device,
                       const TextStyle& style) {
  // A narrow terminal has no room for the time and the bar.
  const int bar_width = style.width - 2 - 8 - 15 - 15 - 10 - 2;
  const bool narrow = bar_width < 4;
  std::string out = Paint(style, Colour::kDim,
                          Format("  {}{}{}{}", PadRight("", 8), PadLeft(OwnName(recording), 15),
                                 PadLeft("card used", 15), narrow ? "" : PadLeft("at", 10))) +
                    '\n';
  const std::vector<Rung> rungs = Rungs(device);
  Bytes highest(1);
  for (const Rung& rung : rungs) highest = std::max(highest, rung.used);
  for (const Rung& rung : rungs) {
    const double share =
        static_cast<double>(rung.used.count()) / static_cast<double>(highest.count());
    std::string line = Format("  {}{}{}", PadRight(rung.name, 8),
                              PadLeft(rung.own ? FormatMiB(*rung.own) : "", 15),
                              PadLeft(FormatMiB(rung.used), 15));
    if (!narrow) {
      line += PadLeft(rung.seconds ? Format("{:.2f} s", *rung.seconds) : "", 10) + "  " +
              Paint(style, Colour::kBlue, Bar(style, share, bar_width));
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

// ---- Chart ----

// Every sample, or of each of `most` / 2 stretches the lowest and the highest.
std::vector<DeviceSample> Thinned(const std::vector<DeviceSample>& samples, size_t most) {
  if (samples.size() <= most) return samples;
  std::vector<DeviceSample> kept;
  const size_t length = (samples.size() + most / 2 - 1) / (most / 2);
  const auto smaller = [](const DeviceSample& a, const DeviceSample& b) {
    return std::pair(a.own, a.used) < std::pair(b.own, b.used);
  };
  for (size_t from = 0; from < samples.size(); from += length) {
    const auto begin = samples.begin() + static_cast<std::ptrdiff_t>(from);
    const auto end =
        samples.begin() + static_cast<std::ptrdiff_t>(std::min(from + length, samples.size()));
    auto [low, high] = std::minmax_element(begin, end, smaller);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (low != high) kept.push_back(*high);
  }
  return kept;
}

// ---- Processes ----

std::string NameOf(const observe::RecordedProcess& process) {
  return process.name.empty() ? "(not visible here)" : process.name;
}

std::vector<observe::RecordedProcess> Processes(const DeviceRecording& device) {
  std::vector<observe::RecordedProcess> sorted = device.processes;
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) {
    return std::pair(a.own, a.peak.value_or(Bytes(0))) >
           std::pair(b.own, b.peak.value_or(Bytes(0)));
  });
  return sorted;
}

std::string ProcessText(const Recording& recording, const DeviceRecording& device,
                        const TextStyle& style) {
  if (!device.processes_missing.empty()) {
    return Paragraph(style, "  ",
                     Format("The driver lists no processes: {}.", device.processes_missing));
  }
  if (device.processes.empty()) return "";
  std::string out =
      Paint(style, Colour::kDim,
            Format("  {}{}{}", PadLeft("pid", 9), PadLeft("highest", 15), "  process")) +
      '\n';
  const std::vector<observe::RecordedProcess> processes = Processes(device);
  for (size_t i = 0; i < std::min(processes.size(), kProcessesShown); ++i) {
    const observe::RecordedProcess& process = processes[i];
    std::string name = NameOf(process);
    if (process.own) name += Format(" ({})", OwnName(recording));
    out += Format("  {}{}  {}\n", PadLeft(std::to_string(process.pid), 9),
                  PadLeft(process.peak ? FormatMiB(*process.peak) : "not told", 15),
                  Shorten(style, name, style.width - 28));
  }
  if (processes.size() > kProcessesShown) {
    out += Format("  and {} more\n", processes.size() - kProcessesShown);
  }
  return out;
}

// ---- Page ----

void AddDevice(const Recording& recording, const DeviceRecording& device, ReportPage& page) {
  page.timelines.push_back(TimelineOf(recording, device));
  PageTable ladder;
  ladder.heading = device.Label() + ": ladder";
  ladder.note = MatchNote(device.match);
  ladder.columns = {"moment", OwnName(recording), "card used", "at second"};
  for (const Rung& rung : Rungs(device)) {
    ladder.rows.push_back({rung.name, rung.own ? PageCell(*rung.own) : PageCell(), rung.used,
                           rung.seconds ? PageCell(PageNumber{*rung.seconds}) : PageCell()});
  }
  page.tables.push_back(std::move(ladder));
  PageTable processes;
  processes.heading = device.Label() + ": processes";
  processes.columns = {"process", "pid", "whose", "highest", "first seen at second", "last seen"};
  for (const observe::RecordedProcess& process : Processes(device)) {
    processes.rows.push_back({NameOf(process), std::to_string(process.pid),
                              process.own ? OwnName(recording) : std::string("another"),
                              process.peak ? PageCell(*process.peak) : PageCell(),
                              PageNumber{process.first_seconds}, PageNumber{process.last_seconds}});
  }
  if (!processes.rows.empty()) page.tables.push_back(std::move(processes));
}

Bytes PeakOf(const DeviceRecording& device, const DeviceLadder& ladder) {
  return device.match == OwnMatch::kNone ? ladder.peak.used : ladder.peak.own;
}

std::string PeakSentence(const DeviceRecording& device, const DeviceLadder& ladder) {
  return Format("Peak of {} on {} after {:.2f} s.", FormatMiB(PeakOf(device, ladder)),
                device.Label(), ladder.peak.seconds);
}

}  // namespace

PageTimeline TimelineOf(const Recording& recording, const DeviceRecording& device) {
  PageTimeline timeline;
  timeline.name = device.Label();
  const bool own = device.match != OwnMatch::kNone;
  PageTimeline::Layer mine{recording.command.empty() ? "watched processes" : "the command", {}, {}};
  PageTimeline::Layer others{own ? "others on the card" : "used", {}, {}};
  for (const DeviceSample& sample : Thinned(device.samples, kMostPageSamples)) {
    timeline.seconds.push_back(sample.seconds);
    mine.bytes.push_back(sample.own);
    others.bytes.push_back(std::max(Bytes(0), sample.used - sample.own));
  }
  if (own) timeline.layers.push_back(std::move(mine));
  timeline.layers.push_back(std::move(others));
  return timeline;
}

Bytes PeakOf(const DeviceRecording& device) { return PeakOf(device, LadderOf(device)); }

const DeviceRecording* BusiestDevice(const Recording& recording) {
  const std::vector<const DeviceRecording*> shown = ShownDevices(recording);
  const auto most = std::ranges::max_element(shown, {}, [](const auto* d) { return PeakOf(*d); });
  return most == shown.end() ? nullptr : *most;
}

std::string PeakWords(const Recording& recording, const DeviceRecording& device) {
  const DeviceLadder ladder = LadderOf(device);
  std::string text = PeakSentence(device, ladder);
  if (ladder.context) {
    text +=
        Format(" The first level held was {}, its CUDA context.", FormatMiB(ladder.context->own));
  }
  if (device.match == OwnMatch::kNone) {
    text += " Nothing was watched: these are figures of the whole card.";
  }
  if (const std::string note = MatchNote(device.match); !note.empty()) text += " " + note;
  const size_t others = ShownDevices(recording).size() - 1;
  if (others > 0) text += Format(" {} more GPUs were used and are not compared.", others);
  return text;
}

std::string RecordingText(const Recording& recording, const TextStyle& style) {
  std::string title = Format("{:.1f} s", recording.seconds);
  if (recording.exit_code) title += ", " + ExitWords(recording);
  std::string out =
      Paint(style, Colour::kBold, Shorten(style, CommandLine(recording), style.width)) + '\n' +
      title + '\n';
  const std::vector<const DeviceRecording*> devices = ShownDevices(recording);
  if (devices.empty()) {
    return out + (recording.command.empty() ? "Nothing was seen on the GPUs.\n"
                                            : "The command held no device memory.\n");
  }
  for (const DeviceRecording* device : devices) {
    out += '\n' + Paragraph(style, "", DeviceWords(*device)) +
           LadderText(recording, *device, style) + '\n' +
           ChartText(TimelineOf(recording, *device), style) + '\n' +
           ProcessText(recording, *device, style);
    if (const std::string note = MatchNote(device->match); !note.empty()) {
      out += '\n' + Paragraph(style, "  ", note);
    }
  }
  return out;
}

ReportPage RecordingPage(const Recording& recording) {
  ReportPage page;
  page.generator = Generator();
  page.kind = "watch";
  page.heading = CommandLine(recording);
  page.facts = {Format("{:.1f} s", recording.seconds)};
  if (recording.exit_code) page.facts.push_back(ExitWords(recording));
  if (!recording.driver.empty()) page.facts.push_back("driver " + recording.driver);
  const std::vector<const DeviceRecording*> devices = ShownDevices(recording);
  for (const DeviceRecording* device : devices) {
    page.summary.push_back({Tone::kPlain, PeakSentence(*device, LadderOf(*device))});
    page.facts.push_back(DeviceWords(*device));
    AddDevice(recording, *device, page);
  }
  if (devices.empty()) {
    page.summary = {{Tone::kPlain, recording.command.empty()
                                       ? "Nothing was seen on the GPUs."
                                       : "The command held no device memory."}};
  }
  if (devices.size() == 1) {
    const DeviceRecording& device = *devices.front();
    const DeviceLadder ladder = LadderOf(device);
    if (ladder.context) {
      page.totals.push_back({"context", ladder.context->own, "the first level that was held"});
    }
    page.totals.push_back(
        {"peak", PeakOf(device, ladder), Format("after {:.2f} s", ladder.peak.seconds)});
    page.totals.push_back({"card used at the peak", ladder.peak.used, "as nvidia-smi shows it"});
    page.limit = PageRung{device.name, device.total - device.reserved.value_or(Bytes(0))};
  }
  return page;
}

}  // namespace headroom::cli
