// SPDX-License-Identifier: Apache-2.0
#include "watch_live.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.h"

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;
using observe::GpuMemory;
using observe::GpuProcess;
using observe::ProcessTable;

std::vector<GpuProcess> Shown(const GpuMemory& memory, const std::vector<uint32_t>& pids) {
  std::vector<GpuProcess> shown;
  for (const GpuProcess& process : memory.processes) {
    if (pids.empty() || std::ranges::find(pids, process.pid) != pids.end()) {
      shown.push_back(process);
    }
  }
  return shown;
}

// Columns of a line in front of what `more` of SizeLine holds.
constexpr int kBeforeMore = 2 + 10 + 13 + 2;

std::string SizeLine(std::string_view name, Bytes size, std::string_view more) {
  std::string line = Format("  {}{}  {}", PadRight(name, 10), PadLeft(FormatMiB(size), 13), more);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

// How full a card is, where the window has room for it.
std::string FullnessBar(const GpuMemory& memory, const TextStyle& style) {
  constexpr int kShortest = 8;
  constexpr int kShare = 10;
  const Bytes usable = memory.total - memory.reserved.value_or(Bytes(0));
  const double share = usable > Bytes(0) ? static_cast<double>(memory.used.count()) /
                                               static_cast<double>(usable.count())
                                         : 0;
  const int width = style.width - kBeforeMore - kShare;
  if (width < kShortest) return "";
  return PadRight(Paint(style, Colour::kBlue, Bar(style, share, width)), width) +
         PadLeft(Percent(share), kShare);
}

std::string ProcessesText(const GpuMemory& memory, const ProcessTable& table,
                          const std::vector<uint32_t>& pids, const TextStyle& style) {
  if (!memory.processes_missing.empty()) {
    return Paragraph(style, "  ",
                     Format("The driver lists no processes: {}.", memory.processes_missing));
  }
  std::vector<GpuProcess> processes = Shown(memory, pids);
  std::ranges::stable_sort(processes, [](const GpuProcess& a, const GpuProcess& b) {
    return a.bytes.value_or(Bytes(0)) > b.bytes.value_or(Bytes(0));
  });
  std::string out;
  for (const GpuProcess& process : processes) {
    std::string name = table.Name(process.pid);
    if (name.empty()) name = "(not visible here)";
    if (process.type == GpuProcess::Type::kGraphics) name += ", graphics";
    const std::string size = process.bytes ? FormatMiB(*process.bytes) : "not told";
    out += Format("  {}{}  {}\n", PadLeft(std::to_string(process.pid), 10), PadLeft(size, 13),
                  Shorten(style, name, style.width - kBeforeMore));
  }
  if (processes.empty()) {
    const std::string_view none =
        pids.empty() ? "no process holds memory here" : "none of the watched is here";
    out = "  " + Paint(style, Colour::kDim, none) + '\n';
  }
  return out;
}

std::string CardText(const std::string& label, const GpuMemory& memory, const ProcessTable& table,
                     const std::vector<uint32_t>& pids, const TextStyle& style) {
  std::string out =
      Paint(style, Colour::kBold,
            Shorten(style, Format("{}: {}, {}", label, memory.name, FormatMiB(memory.total)),
                    style.width)) +
      '\n';
  out += SizeLine("used", memory.used, FullnessBar(memory, style));
  out += SizeLine("free", memory.free, "");
  if (memory.reserved) {
    out += SizeLine("driver", *memory.reserved,
                    Shorten(style, "reserved, not in used", style.width - kBeforeMore));
  }
  return out + ProcessesText(memory, table, pids, style);
}

Json MaybeBytes(const std::optional<Bytes>& size) {
  return size ? Json(size->count()) : Json(nullptr);
}

Json CardJson(const GpuMemory& memory, const ProcessTable& table,
              const std::vector<uint32_t>& pids) {
  Json processes = Json::array();
  for (const GpuProcess& process : Shown(memory, pids)) {
    const bool graphics = process.type == GpuProcess::Type::kGraphics;
    processes.push_back({{"pid", process.pid},
                         {"name", table.Name(process.pid)},
                         {"type", graphics ? "graphics" : "compute"},
                         {"bytes", MaybeBytes(process.bytes)}});
  }
  Json json = {{"index", memory.index},
               {"name", memory.name},
               {"uuid", memory.uuid},
               {"total", memory.total.count()},
               {"used", memory.used.count()},
               {"free", memory.free.count()},
               {"reserved", MaybeBytes(memory.reserved)},
               {"processes", processes}};
  if (!memory.processes_missing.empty()) json["processes_missing"] = memory.processes_missing;
  if (memory.instances.empty()) return json;
  json["instances"] = Json::array();
  for (const GpuMemory& instance : memory.instances) {
    json["instances"].push_back(CardJson(instance, table, pids));
  }
  return json;
}

}  // namespace

std::string CardsText(const std::vector<GpuMemory>& cards, const ProcessTable& table,
                      const std::vector<uint32_t>& pids, const TextStyle& style) {
  std::string out;
  const auto add = [&](const std::string& label, const GpuMemory& memory) {
    if (!out.empty()) out += '\n';
    out += CardText(label, memory, table, pids, style);
  };
  for (const GpuMemory& card : cards) {
    const std::string label = Format("GPU {}", card.index);
    if (card.instances.empty()) add(label, card);
    for (const GpuMemory& instance : card.instances) {
      add(Format("{} MIG {}", label, instance.index), instance);
    }
  }
  return out;
}

std::string CardsJson(double time, const std::vector<GpuMemory>& cards, const ProcessTable& table,
                      const std::vector<uint32_t>& pids) {
  Json gpus = Json::array();
  for (const GpuMemory& card : cards) gpus.push_back(CardJson(card, table, pids));
  const Json json = {{"time", std::round(time * 1000) / 1000}, {"gpus", gpus}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace headroom::cli
