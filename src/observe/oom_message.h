// SPDX-License-Identifier: Apache-2.0
//
// OomMessage: what PyTorch said when an allocation failed, from a pasted line, traceback or log.
//
// Every wording from PyTorch 0.4 to 2.11 is read, CUDA and the backends that copied it (ROCm, XPU,
// NPU, MPS, the CPU allocator). The words changed their meaning on the way: "cached" (1.0 to 1.4)
// and "reserved in total" (1.5 to 2.0) are all segments, "reserved but unallocated" (from 2.1) is
// what is left of them. Here they have the names of the ledger:
//
//   capacity 139.80 = other processes 0.01 + this process 5.75 + free 134.04            (GiB)
//   this process 5.75 = reserved 5.08 + outside the allocator 0.67
//   reserved 5.08 = allocated 4.94 + unallocated 0.14
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "ledger/component.h"

namespace headroom::observe {

// One frame of the Python traceback that stood in front of the message.
struct TracebackFrame {
  std::string file;
  int line = 0;
  std::string function;
  std::string code;  // the line's text where the traceback shows it
};

struct ProcessUse {
  uint32_t pid = 0;
  Bytes bytes;
};

struct OomMessage {
  enum class Backend { kCuda, kHip, kXpu, kNpu, kMps, kCpu };

  Backend backend = Backend::kCuda;
  std::string text;  // the message itself, on one line
  // Which versions write so: "PyTorch 2.2 or newer". Empty when it says nothing about the version.
  std::string wording;
  int occurrences = 1;  // messages like it in the text; the last one is read

  std::optional<Bytes> requested;
  std::optional<int> device;
  std::optional<Bytes> capacity;
  std::optional<Bytes> free;           // as the device reports it
  std::optional<Bytes> process;        // everything this process holds on the device
  std::optional<Bytes> allowed;        // set_per_process_memory_fraction
  std::optional<Bytes> allocated;      // tensors
  std::optional<Bytes> private_pools;  // of it, in CUDA graphs' pools
  std::optional<Bytes> reserved;       // the allocator's segments
  std::vector<ProcessUse> other_processes;

  std::vector<TracebackFrame> traceback;  // outermost first
  // What was going on: "load", "forward", "backward", "optimizer", "evaluation", "generation",
  // "save", "data", or "" when the text does not tell.
  std::string phase;
  // The innermost frame that is not PyTorch's own; null when there is no traceback.
  const TracebackFrame* where() const;
  // What that frame was making, where its function tells (loss, attention, …).
  Kind kind = Kind::kOther;

  // Reserved but free: the most that other allocator settings could win.
  std::optional<Bytes> unallocated() const;
  // Context, libraries, other allocators of this process.
  std::optional<Bytes> outside_allocator() const;
  // What other processes and the driver hold.
  std::optional<Bytes> others() const;
};

// Why it failed, most telling first.
enum class OomCause {
  kRequestBeyondDevice,  // one tensor larger than the card (or the cap)
  kCappedByFraction,     // the process may use less than the card has
  kOtherProcesses,       // others hold so much that the request would fit without them
  kFragmentation,        // enough is reserved and free, but not in one piece
  kFull,                 // the process itself fills the card
  kUnknown,              // the message has no numbers
};
std::vector<OomCause> Causes(const OomMessage& message);

// Whether the text speaks of memory that ran out at all: a quick test for choosing a reader.
bool LooksLikeOomText(std::string_view text);

// Fails when there is no such message in the text.
Result<OomMessage> ParseOomMessage(std::string_view text);

}  // namespace headroom::observe
