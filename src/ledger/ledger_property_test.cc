// SPDX-License-Identifier: Apache-2.0
//
// Properties of random event streams: conservation at every event, and the JSON round trip.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "ledger/ledger.h"
#include "ledger/ledger_json.h"

namespace headroom {
namespace {

// Plays `steps` random events into a ledger: allocations, frees of live blocks, reclassifications,
// marks, and segments that always cover what is allocated.
Ledger RandomRun(uint32_t seed, int steps) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return random() % n; };
  Ledger ledger;
  std::vector<BlockId> live;
  for (int i = 0; i < steps; ++i) {
    const size_t dice = below(10);
    if (dice < 5) {
      const Bytes size(static_cast<int64_t>(below(1 << 20)));
      const Bytes missing = ledger.allocated() + size - ledger.reserved();
      if (missing > Bytes(0)) ledger.ChangeReserved(RoundUp(missing, MiB(2)));
      live.push_back(ledger.Alloc(size, static_cast<Component>(below(kAllocatedComponentCount)),
                                  static_cast<Kind>(below(kKindCount)),
                                  ledger.InternModule("layer." + std::to_string(below(4))),
                                  ledger.InternOp("op" + std::to_string(below(3)))));
    } else if (dice < 8 && !live.empty()) {
      std::swap(live[below(live.size())], live.back());
      ledger.Free(live.back());
      live.pop_back();
    } else if (dice < 9 && !live.empty()) {
      ledger.Reclassify(live[below(live.size())],
                        static_cast<Component>(below(kAllocatedComponentCount)),
                        static_cast<Kind>(below(kKindCount)));
    } else {
      ledger.Mark("step_end", i);
    }
  }
  return ledger;
}

Ledger AnyRun() {
  const auto seed = *rc::gen::arbitrary<uint32_t>();
  return RandomRun(seed, *rc::gen::inRange(1, 200));
}

RC_GTEST_PROP(LedgerProperty, ComponentsSumToAllocatedAndReservedAtEveryEvent, ()) {
  const Ledger ledger = AnyRun();
  Bytes allocated;
  Bytes reserved;
  for (size_t at = 0; at < ledger.events().size(); ++at) {
    const MemoryEvent& event = ledger.events()[at];
    if (event.type == MemoryEvent::Type::kAlloc) allocated += Bytes(event.bytes);
    if (event.type == MemoryEvent::Type::kFree) allocated -= Bytes(event.bytes);
    if (event.type == MemoryEvent::Type::kReserve) reserved += Bytes(event.bytes);
    const ComponentBytes components = ledger.ComponentsAt(at);
    const auto tensors = components.begin() + kAllocatedComponentCount;
    RC_ASSERT(std::accumulate(components.begin(), tensors, Bytes(0)) == allocated);
    RC_ASSERT(allocated + components[static_cast<size_t>(Component::kCache)] == reserved);
    RC_ASSERT(allocated <= ledger.peak_allocated());
  }
}

RC_GTEST_PROP(LedgerProperty, LiveBlocksAndKindsAgreeWithComponents, ()) {
  const Ledger ledger = AnyRun();
  RC_PRE(!ledger.events().empty());
  const size_t at = *rc::gen::inRange<size_t>(0, ledger.events().size());
  ComponentBytes live{};
  for (const LiveBlock& block : ledger.LiveAt(at)) {
    live[static_cast<size_t>(ledger.events()[block.event].component)] += block.bytes;
  }
  const ComponentBytes components = ledger.ComponentsAt(at);
  RC_ASSERT(std::equal(live.begin(), live.begin() + kAllocatedComponentCount, components.begin()));
  const KindBytes kinds = ledger.KindsAt(at);
  RC_ASSERT(std::accumulate(kinds.begin(), kinds.end(), Bytes(0)) ==
            components[static_cast<size_t>(Component::kActivations)] +
                components[static_cast<size_t>(Component::kTemporaries)]);
}

RC_GTEST_PROP(LedgerProperty, PeakIsTheHighestOfAllMarksAndEvents, ()) {
  Ledger ledger = AnyRun();
  ledger.Mark("step_end", 1);
  Bytes highest;
  for (const PhaseMark& mark : ledger.marks()) highest = std::max(highest, mark.peak_allocated);
  RC_ASSERT(highest == ledger.peak_allocated());
  Bytes alive;
  for (const LiveBlock& block : ledger.LiveAt(ledger.peak_event())) alive += block.bytes;
  RC_ASSERT(alive == ledger.peak_allocated());
}

RC_GTEST_PROP(LedgerProperty, JsonComesBackTheSame, ()) {
  const Ledger ledger = AnyRun();
  const std::string text = ToJson(ledger);
  const Result<Ledger> back = LedgerFromJson(text, "random");
  RC_ASSERT(back.ok());
  RC_ASSERT(ToJson(*back) == text);
  RC_ASSERT(back->events().size() == ledger.events().size());
}

RC_GTEST_PROP(LedgerProperty, ChangedByteIsRefusedOrHarmless, ()) {
  std::string text = ToJson(AnyRun());
  text[*rc::gen::inRange<size_t>(0, text.size())] = *rc::gen::inRange<char>(32, 127);
  const Result<Ledger> back = LedgerFromJson(text, "random");
  const bool clean = back.ok() || back.error().message.find('\n') == std::string::npos;
  RC_ASSERT(clean);
}

}  // namespace
}  // namespace headroom
