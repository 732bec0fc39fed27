// SPDX-License-Identifier: Apache-2.0
//
// Ledger: the stream of memory events of one run, and what folding it tells.
//
// Every producer (predict, engine, observe) writes the same stream; every writer (terminal, JSON,
// HTML) reads it. A block is one allocation: it is allocated once, freed at most once, and keeps
// its component for life.
//
//   events        alloc A 4 MiB weights | alloc B 2 MiB activations | free B | mark forward_end
//   allocated     4                       6                           4
//   reserved     20                      20                          20        (segments)
//
// Invariant, at every event: the sum of live blocks over components = allocated <= reserved.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "ledger/component.h"
#include "ledger/event_log.h"

namespace headroom {

// The end of a phase, as hf_memory.jsonl writes it: `name` is train_begin, step_begin,
// forward_begin, forward_end, substep_end, backward_end, optimizer_end or step_end.
struct PhaseMark {
  std::string name;
  int step = 0;          // 1 for the first step; 0 before it
  size_t event = 0;      // position of the mark in events()
  Bytes allocated;       // at the mark
  Bytes peak_allocated;  // highest since the previous mark
  Bytes reserved;        // at the mark
};

// Bytes per component, all ten.
using ComponentBytes = std::array<Bytes, kComponentCount>;
// Bytes per kind, over activations and temporaries.
using KindBytes = std::array<Bytes, kKindCount>;

// One line of "what lies outside the allocator": CUDA context, cuBLAS, cuDNN, ….
struct ContextPart {
  std::string name;
  Bytes bytes;
};

struct LiveBlock {
  BlockId block{};
  size_t event = 0;  // position of its kAlloc
  Bytes bytes;
};

class Ledger {
 public:
  Ledger();

  // ---- Writing the stream (producers) ----

  // The id of a module path ("bert.encoder.layer.3.attention") or op name ("aten::addmm").
  ModuleId InternModule(std::string_view path);
  OpId InternOp(std::string_view name);

  void Reserve(size_t events) { events_.Reserve(events); }
  // Returns the new block's id. REQUIRES: bytes >= 0 and component < kCache.
  BlockId Alloc(Bytes bytes, Component component, Kind kind, ModuleId module, OpId op);
  // REQUIRES: `block` is live.
  void Free(BlockId block);
  // The allocator's segments grew or shrank.
  void ChangeReserved(Bytes change);
  // A phase ends: records allocated, reserved and the peak since the last mark.
  void Mark(std::string_view name, int step);
  // Renames what a block is for, for its whole life: a gradient is known to be one only when
  // autograd stores it.
  void Reclassify(BlockId block, Component component, Kind kind);
  // What the process holds outside the allocator.
  void SetContext(std::vector<ContextPart> parts);

  // ---- Reading ----

  const EventLog& events() const { return events_; }
  std::span<const PhaseMark> marks() const { return marks_; }
  std::span<const ContextPart> context_parts() const { return context_; }
  const std::string& ModulePath(ModuleId id) const { return modules_[static_cast<size_t>(id)]; }
  const std::string& OpName(OpId id) const { return ops_[static_cast<size_t>(id)]; }
  std::span<const std::string> modules() const { return modules_; }
  std::span<const std::string> ops() const { return ops_; }

  Bytes allocated() const { return allocated_; }            // now
  Bytes reserved() const { return reserved_; }              // now
  Bytes peak_allocated() const { return peak_allocated_; }  // over all events
  Bytes peak_reserved() const { return peak_reserved_; }
  Bytes context() const;  // sum of context_parts()
  // Position of the first event at which allocated reaches its peak; 0 in an empty ledger.
  size_t peak_event() const { return peak_event_; }

  // What is alive after `event`, in order of allocation. REQUIRES: event < events().size().
  std::vector<LiveBlock> LiveAt(size_t event) const;
  // Bytes by component after `event`, kCache (reserved - allocated) and kContext included.
  ComponentBytes ComponentsAt(size_t event) const;
  // Bytes by kind after `event`, of activations and temporaries.
  KindBytes KindsAt(size_t event) const;
  // The mark that closes the phase `event` lies in, or null after the last mark.
  const PhaseMark* PhaseOf(size_t event) const;
  // Components at every mark, in one pass; the order of marks().
  std::vector<ComponentBytes> ComponentsAtMarks() const;

 private:
  EventLog events_;
  std::vector<uint32_t> block_event_;  // BlockId -> position of its kAlloc
  std::vector<PhaseMark> marks_;
  std::vector<std::string> modules_;
  std::vector<std::string> ops_;
  std::unordered_map<std::string, ModuleId> module_ids_;
  std::unordered_map<std::string, OpId> op_ids_;
  std::vector<ContextPart> context_;
  Bytes allocated_;
  Bytes reserved_;
  Bytes peak_allocated_;
  Bytes peak_reserved_;
  Bytes phase_peak_;
  size_t peak_event_ = 0;
};

}  // namespace headroom
