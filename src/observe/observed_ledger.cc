// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "observe/classify.h"

namespace headroom::observe {
namespace {

// Ledger's ops are numbered in 16 bits; a recording with more names keeps the first.
constexpr size_t kMostOps = 60'000;

class LedgerBuilder {
 public:
  LedgerBuilder(const Snapshot& snapshot, const Replay& replay, const Classification& classes)
      : snapshot_(snapshot), replay_(replay), classes_(classes), ids_(replay.blocks.size()) {
    modules_.assign(snapshot.stacks.size(), kNone);
    ops_.assign(snapshot.stacks.size(), kNone);
    unexplained_ = ledger_.InternOp("unexplained");
  }

  Ledger Build() {
    ledger_.Reserve(2 * replay_.blocks.size() + classes_.phases.cuts.size() + 16);
    if (replay_.start_reserved != Bytes(0)) ledger_.ChangeReserved(replay_.start_reserved);
    size_t next = 0;  // block to be born
    for (; next < replay_.blocks.size() && replay_.blocks[next].from_before(); ++next) Alloc(next);
    const std::vector<uint32_t> dying = DyingByEvent();
    for (uint32_t event = replay_.events.first; event < replay_.events.end(); ++event) {
      MarkUpTo(event);
      const int64_t reserved = ReservedChange(snapshot_, event);
      if (reserved != 0) ledger_.ChangeReserved(Bytes(reserved));
      // A contradiction frees the old block with the event that puts a new one in its place.
      if (const uint32_t dead = dying[event - replay_.events.first]; dead != kNone) {
        ledger_.Free(ids_[dead]);
      }
      if (next < replay_.blocks.size() && replay_.blocks[next].alloc_event == event) Alloc(next++);
      if (snapshot_.events.action[event] == Action::kOom) ledger_.Mark("oom", StepAt(event));
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

  std::vector<uint32_t> DyingByEvent() const {
    std::vector<uint32_t> dying(replay_.events.count, kNone);
    for (size_t i = 0; i < replay_.blocks.size(); ++i) {
      const uint32_t event = replay_.blocks[i].free_event;
      if (event != kNoEvent) dying[event - replay_.events.first] = static_cast<uint32_t>(i);
    }
    return dying;
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
    ids_[i] = ledger_.Alloc(Bytes(block.bytes), c.component, c.kind, module, op);
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

  const Snapshot& snapshot_;
  const Replay& replay_;
  const Classification& classes_;
  Ledger ledger_;
  std::vector<BlockId> ids_;
  std::vector<uint32_t> modules_;  // by stack
  std::vector<uint32_t> ops_;      // by stack
  OpId unexplained_{};
  size_t cut_ = 0;
};

}  // namespace

Ledger BuildLedger(const Snapshot& snapshot, const Replay& replay, const Classification& classes) {
  return LedgerBuilder(snapshot, replay, classes).Build();
}

}  // namespace headroom::observe
