// SPDX-License-Identifier: Apache-2.0
//
// The Trace Event Format of chrome://tracing: "X" is a slice, "C" a counter whose series stack.

#include <nlohmann/json.hpp>

#include "base/format.h"
#include "report/plan_report.h"
#include "report/snapshot_export.h"

namespace headroom {
namespace {

std::string Quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

class TraceWriter {
 public:
  explicit TraceWriter(const Ledger& ledger) : ledger_(ledger) {}

  std::string Write() {
    out_ = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    out_ +=
        "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": \"GPU "
        "memory\"}}";
    size_t begin = 0;
    for (size_t at = 0; at < ledger_.events().size(); ++at) {
      const MemoryEvent& event = ledger_.events()[at];
      if (event.type == MemoryEvent::Type::kMark) {
        Slice(ledger_.marks()[static_cast<size_t>(event.block)], begin, at);
        begin = at;
      } else {
        Change(event);
        Counter(at);
      }
      if (at == ledger_.peak_event()) Peak(at);
    }
    return std::move(out_) + "\n]}\n";
  }

 private:
  void Change(const MemoryEvent& event) {
    const auto at = static_cast<size_t>(event.component);
    if (event.type == MemoryEvent::Type::kAlloc) components_[at] += Bytes(event.bytes);
    if (event.type == MemoryEvent::Type::kFree) components_[at] -= Bytes(event.bytes);
    if (event.type == MemoryEvent::Type::kReserve) reserved_ += Bytes(event.bytes);
  }

  void Counter(size_t at) {
    out_ += Format(",\n{{\"ph\": \"C\", \"name\": \"memory\", \"pid\": 0, \"ts\": {}, \"args\": {{",
                   at);
    Bytes cache = reserved_;
    for (size_t i = 0; i < kAllocatedComponentCount; ++i) {
      cache -= components_[i];
      out_ += Format("\"{}\": {}, ", Name(static_cast<Component>(i)), components_[i].count());
    }
    out_ += Format("\"cache\": {}}}}}", cache.count());
  }

  void Slice(const PhaseMark& mark, size_t begin, size_t end) {
    const std::string name = mark.step > 0 ? Format("step {}: {}", mark.step, PhaseWords(mark.name))
                                           : std::string(PhaseWords(mark.name));
    out_ += Format(
        ",\n{{\"ph\": \"X\", \"name\": {}, \"pid\": 0, \"tid\": 0, \"ts\": {}, \"dur\": {}, "
        "\"args\": {{\"peak\": {}, \"allocated\": {}, \"reserved\": {}}}}}",
        Quoted(name), begin, end - begin, mark.peak_allocated.count(), mark.allocated.count(),
        mark.reserved.count());
  }

  void Peak(size_t at) {
    out_ += Format(
        ",\n{{\"ph\": \"i\", \"name\": \"peak\", \"s\": \"p\", \"pid\": 0, \"tid\": 0, \"ts\": {}, "
        "\"args\": {{\"allocated\": {}}}}}",
        at, ledger_.peak_allocated().count());
  }

  const Ledger& ledger_;
  std::string out_;
  ComponentBytes components_{};
  Bytes reserved_;
};

}  // namespace

std::string ChromeTrace(const Ledger& ledger) { return TraceWriter(ledger).Write(); }

}  // namespace headroom
