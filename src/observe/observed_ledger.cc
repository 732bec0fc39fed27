// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/check.h"
#include "observe/classify.h"
#include "observe/deaths.h"

namespace headroom::observe {
namespace {

// Ledger's ops are numbered in 16 bits; a recording with more names keeps the first.
constexpr size_t kMostOps = 60'000;

class LedgerBuilder {
 public:
  LedgerBuilder(const Snapshot& snapshot, const Replay& replay, const Classification& classes)
      : replay_(replay), classes_(classes) {
    modules_.assign(snapshot.stacks.size(), kNone);
    ops_.assign(snapshot.stacks.size(), kNone);
    unexplained_ = ledger_.InternOp("unexplained");
  }

  Ledger Build() {
    ledger_.Reserve(EventCount());
    if (replay_.start_reserved != Bytes(0)) ledger_.ChangeReserved(replay_.start_reserved);
    size_t next = 0;  // block to be born
    for (; next < replay_.blocks.size() && replay_.blocks[next].from_before(); ++next) Alloc(next);
    Deaths deaths(replay_);
    for (uint32_t event = replay_.events.first; event < replay_.events.end(); ++event) {
      MarkUpTo(event);
      const std::vector<SegmentEvent>& segments = replay_.segments;
      for (; segment_ < segments.size() && segments[segment_].event == event; ++segment_) {
        if (segments[segment_].change != Bytes(0)) {
          ledger_.ChangeReserved(segments[segment_].change);
        }
      }
      // A contradiction frees the old block with the event that puts a new one in its place.
      if (const uint32_t dead = deaths.At(event); dead != Deaths::kNone) {
        ledger_.Free(BlockId(dead));
      }
      if (next < replay_.blocks.size() && replay_.blocks[next].alloc_event == event) Alloc(next++);
      for (; oom_ < replay_.ooms.size() && replay_.ooms[oom_].event == event; ++oom_) {
        ledger_.Mark("oom", StepAt(event));
      }
    }
    MarkUpTo(kNoEvent);
    // What follows the last phase mark belongs to a phase that the recording did not see end.
    const bool marked =
        !ledger_.marks().empty() && ledger_.marks().back().event + 1 == ledger_.events().size();
    if (!marked && !ledger_.events().empty()) ledger_.Mark("end", classes_.phases.steps);
    return std::move(ledger_);
  }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Exact but for a few, because to grow a ledger of millions is to hold it twice.
  size_t EventCount() const {
    size_t count = replay_.blocks.size() + replay_.segments.size() + replay_.ooms.size() +
                   classes_.phases.cuts.size() + 16;
    for (const BlockLife& block : replay_.blocks) count += block.free_event != kNoEvent ? 1 : 0;
    return count;
  }

  void MarkUpTo(uint32_t event) {
    const std::vector<PhaseCut>& cuts = classes_.phases.cuts;
    for (; cut_ < cuts.size() && cuts[cut_].event <= event; ++cut_) {
      ledger_.Mark(cuts[cut_].name, cuts[cut_].step);
    }
  }

  int StepAt(uint32_t event) const {
    const PhaseSpan* span = classes_.phases.At(event);
    return span == nullptr ? 0 : span->step;
  }

  void Alloc(size_t i) {
    const BlockLife& block = replay_.blocks[i];
    const BlockClass& c = classes_.blocks[i];
    const ModuleId module =
        c.name != 0 ? ledger_.InternModule(classes_.names[c.name]) : ModuleOf(block.stack);
    const OpId op = c.explained ? OpOf(block.stack) : unexplained_;
    const BlockId id = ledger_.Alloc(Bytes(block.bytes), c.component, c.kind, module, op);
    HEADROOM_CHECK(static_cast<size_t>(id) == i, "blocks are numbered in order of allocation");
  }

  ModuleId ModuleOf(StackId stack) {
    uint32_t& known = modules_[static_cast<uint32_t>(stack)];
    if (known == kNone) {
      known = static_cast<uint32_t>(ledger_.InternModule(classes_.stacks[stack].module));
    }
    return ModuleId(known);
  }

  OpId OpOf(StackId stack) {
    uint32_t& known = ops_[static_cast<uint32_t>(stack)];
    if (known == kNone) {
      const bool room = ledger_.ops().size() < kMostOps;
      known = room ? static_cast<uint32_t>(ledger_.InternOp(classes_.stacks[stack].op)) : 0;
    }
    return OpId(static_cast<uint16_t>(known));
  }

  const Replay& replay_;
  const Classification& classes_;
  Ledger ledger_;
  std::vector<uint32_t> modules_;  // by stack
  std::vector<uint32_t> ops_;      // by stack
  OpId unexplained_{};
  size_t segment_ = 0;  // the next of replay_.segments
  size_t oom_ = 0;
  size_t cut_ = 0;
};

}  // namespace

Ledger BuildLedger(const Snapshot& snapshot, const Replay& replay, const Classification& classes) {
  return LedgerBuilder(snapshot, replay, classes).Build();
}

}  // namespace headroom::observe
