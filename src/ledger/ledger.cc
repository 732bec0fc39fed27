// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace headroom {
namespace {

// Calls visit(position, event, live components so far) for every event up to and including `last`.
// `block_event` finds a block's kAlloc, which alone knows what Reclassify made of it.
template <typename Visit>
void Fold(const EventLog& events, std::span<const uint32_t> block_event, size_t last,
          const Visit& visit) {
  ComponentBytes live{};
  Bytes reserved;
  Bytes allocated;
  for (size_t at = 0; at <= last && at < events.size(); ++at) {
    const MemoryEvent& event = events[at];
    const auto change = [&](Bytes bytes) {
      const MemoryEvent& born = events[block_event[static_cast<size_t>(event.block)]];
      live[static_cast<size_t>(born.component)] += bytes;
      allocated += bytes;
    };
    switch (event.type) {
      case MemoryEvent::Type::kAlloc:
        change(Bytes(event.bytes));
        break;
      case MemoryEvent::Type::kFree:
        change(-Bytes(event.bytes));
        break;
      case MemoryEvent::Type::kReserve:
        reserved += Bytes(event.bytes);
        break;
      case MemoryEvent::Type::kMark:
        break;
    }
    live[static_cast<size_t>(Component::kCache)] = std::max(Bytes(0), reserved - allocated);
    visit(at, event, live);
  }
}

}  // namespace

Ledger::Ledger() {
  InternModule("");
  InternOp("");
}

ModuleId Ledger::InternModule(std::string_view path) {
  const auto [entry, added] = module_ids_.try_emplace(std::string(path), ModuleId(modules_.size()));
  if (added) modules_.emplace_back(path);
  return entry->second;
}

OpId Ledger::InternOp(std::string_view name) {
  const auto [entry, added] = op_ids_.try_emplace(std::string(name), OpId(ops_.size()));
  if (added) {
    HEADROOM_CHECK(ops_.size() < std::numeric_limits<uint16_t>::max(), "more than 65,535 op names");
    ops_.emplace_back(name);
  }
  return entry->second;
}

BlockId Ledger::Alloc(Bytes bytes, Component component, Kind kind, ModuleId module, OpId op) {
  HEADROOM_CHECK(bytes.count() >= 0, "a block of negative size");
  HEADROOM_CHECK(static_cast<int>(component) < kAllocatedComponentCount,
                 "cache and context are derived, never allocated");
  const BlockId block{static_cast<uint32_t>(block_event_.size())};
  block_event_.push_back(static_cast<uint32_t>(events_.size()));
  events_.Add({bytes.count(), block, module, op, MemoryEvent::Type::kAlloc, component, kind});
  allocated_ += bytes;
  phase_peak_ = std::max(phase_peak_, allocated_);
  if (allocated_ > peak_allocated_) {
    peak_allocated_ = allocated_;
    peak_event_ = events_.size() - 1;
  }
  return block;
}

void Ledger::Free(BlockId block) {
  HEADROOM_CHECK(static_cast<size_t>(block) < block_event_.size(), "unknown block");
  const size_t born = block_event_[static_cast<size_t>(block)];
  events_.AddFree(born);
  allocated_ -= Bytes(events_[born].bytes);
}

void Ledger::ChangeReserved(Bytes change) {
  MemoryEvent event;
  event.type = MemoryEvent::Type::kReserve;
  event.bytes = change.count();
  events_.Add(event);
  reserved_ += change;
  peak_reserved_ = std::max(peak_reserved_, reserved_);
}

void Ledger::Mark(std::string_view name, int step) {
  MemoryEvent event;
  event.type = MemoryEvent::Type::kMark;
  event.block = BlockId(static_cast<uint32_t>(marks_.size()));
  marks_.push_back({std::string(name), step, events_.size(), allocated_, phase_peak_, reserved_});
  events_.Add(event);
  phase_peak_ = allocated_;
}

void Ledger::Reclassify(BlockId block, Component component, Kind kind) {
  events_.Reclassify(block_event_[static_cast<size_t>(block)], component, kind);
}

void Ledger::SetContext(std::vector<ContextPart> parts) { context_ = std::move(parts); }

Bytes Ledger::context() const {
  Bytes sum;
  for (const ContextPart& part : context_) sum += part.bytes;
  return sum;
}

std::vector<LiveBlock> Ledger::LiveAt(size_t event) const {
  HEADROOM_CHECK(event < events_.size(), "no such event");
  std::vector<char> freed(block_event_.size(), 0);
  size_t blocks = 0;
  for (size_t at = 0; at <= event; ++at) {
    if (events_[at].type == MemoryEvent::Type::kAlloc) ++blocks;
    if (events_[at].type == MemoryEvent::Type::kFree) {
      freed[static_cast<size_t>(events_[at].block)] = 1;
    }
  }
  std::vector<LiveBlock> live;
  for (size_t block = 0; block < blocks; ++block) {
    if (freed[block]) continue;
    const size_t at = block_event_[block];
    live.push_back({BlockId(static_cast<uint32_t>(block)), at, Bytes(events_[at].bytes)});
  }
  return live;
}

ComponentBytes Ledger::ComponentsAt(size_t event) const {
  ComponentBytes components{};
  Fold(events_, block_event_, event,
       [&](size_t, const MemoryEvent&, const ComponentBytes& live) { components = live; });
  components[static_cast<size_t>(Component::kContext)] = context();
  return components;
}

KindBytes Ledger::KindsAt(size_t event) const {
  KindBytes kinds{};
  for (size_t at = 0; at <= event && at < events_.size(); ++at) {
    const MemoryEvent& e = events_[at];
    if (e.type != MemoryEvent::Type::kAlloc && e.type != MemoryEvent::Type::kFree) continue;
    const MemoryEvent& born = events_[block_event_[static_cast<size_t>(e.block)]];
    if (born.component != Component::kActivations && born.component != Component::kTemporaries) {
      continue;
    }
    const Bytes bytes(e.type == MemoryEvent::Type::kAlloc ? e.bytes : -e.bytes);
    kinds[static_cast<size_t>(born.kind)] += bytes;
  }
  return kinds;
}

const PhaseMark* Ledger::PhaseOf(size_t event) const {
  const auto mark = std::lower_bound(marks_.begin(), marks_.end(), event,
                                     [](const PhaseMark& m, size_t e) { return m.event < e; });
  return mark == marks_.end() ? nullptr : &*mark;
}

std::vector<ComponentBytes> Ledger::ComponentsAtMarks() const {
  std::vector<ComponentBytes> at_marks;
  if (events_.empty()) return at_marks;
  const Bytes outside = context();
  Fold(events_, block_event_, events_.size() - 1,
       [&](size_t, const MemoryEvent& event, const ComponentBytes& live) {
         if (event.type != MemoryEvent::Type::kMark) return;
         at_marks.push_back(live);
         at_marks.back()[static_cast<size_t>(Component::kContext)] = outside;
       });
  return at_marks;
}

}  // namespace headroom
