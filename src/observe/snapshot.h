// SPDX-License-Identifier: Apache-2.0
//
// Snapshot: what torch.cuda.memory._dump_snapshot wrote, in tables.
//
// Two halves: the trace (what happened, oldest first, per device) and the segments (what stood at
// the end). Either may be missing, and so may every field: what an older PyTorch did not write
// reads as 0, as an empty string or as an empty stack.
//
// PyTorch writes two events for every free, the request and the completion, mostly one right after
// the other: these are one row here.
//
//   trace     segment_alloc 20 MiB | alloc 4 MiB | alloc 8 MiB | free_completed
//   segments  [20 MiB: 4 MiB inactive, 8 MiB active_allocated, 8 MiB inactive]
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "observe/event_table.h"
#include "observe/stack_table.h"
#include "observe/string_table.h"

namespace headroom::observe {

class ByteSource;

// What events share in groups: most of a file has one of these.
struct EventContext {
  StringId compile_context{};
  StringId user_metadata{};
  StringId category{};
  uint32_t pool_first = 0;  // pool_id; (0, 0) is the default pool, others belong to CUDA graphs
  uint32_t pool_second = 0;
  StackId forward_stack{};  // of the forward op whose backward allocates
  bool operator==(const EventContext&) const = default;
};

// Positions first … first + count - 1 of a table.
struct Range {
  uint32_t first = 0;
  uint32_t count = 0;
  uint32_t end() const { return first + count; }
};

struct Block {
  enum class State : uint8_t { kInactive, kActive, kPendingFree };
  uint64_t address = 0;
  int64_t size = 0;
  int64_t requested = 0;  // size where the file does not say
  State state = State::kInactive;
  StackId stack{};
};

struct Segment {
  int device = 0;
  uint64_t address = 0;
  int64_t total = 0;
  uint64_t stream = 0;
  bool is_large = false;
  bool is_expandable = false;
  uint32_t pool_first = 0;
  uint32_t pool_second = 0;
  StackId stack{};
  Range blocks;  // in Snapshot::blocks, by address
};

// A record_function range: "Optimizer.step#AdamW.step" is written without anybody asking.
struct Annotation {
  bool is_start = false;
  StringId name{};
  int device = 0;
  uint64_t time_us = 0;
};

// PYTORCH_CUDA_ALLOC_CONF as it was when the snapshot was taken.
struct AllocatorSettings {
  std::string conf;
  std::optional<Bytes> max_split_size;  // unset: unlimited
  double garbage_collection_threshold = 0;
  bool expandable_segments = false;
  std::map<int64_t, int64_t> roundup_power2_divisions;  // by size in MiB, zeros left out
  bool trace_overflowed = false;                        // the ring of events wrapped
  std::optional<int64_t> trace_max_entries;
};

struct Snapshot {
  StringTable strings;
  FrameTable frames;
  StackTable stacks;

  EventTable events;                // of all devices
  std::vector<Range> devices;       // events of device i
  std::vector<Range> host_devices;  // events of pinned host memory (PyTorch 2.14)
  std::vector<uint64_t> streams;
  std::vector<EventContext> contexts;

  std::vector<Segment> segments;
  std::vector<Segment> host_segments;
  std::vector<Block> blocks;
  std::vector<Annotation> annotations;  // in order of time
  std::optional<AllocatorSettings> settings;

  int protocol = 0;
  std::string era;  // "PyTorch 2.10 or newer", from the fields present
  // Things a reader should know: unknown actions, fields of the wrong type. One line each.
  std::vector<std::string> warnings;

  bool has_trace() const { return events.count() > 0; }
  bool has_frames() const { return frames.size() > 0; }
};

// Reads a snapshot: a pickle, gzipped or not, or the HTML page of _memory_viz.py; `-` is standard
// input. Nothing in the file is executed. The message of an error names the file and, where it
// helps, the byte.
Result<Snapshot> ReadSnapshot(const std::filesystem::path& path);

// The same from memory and from a stream; `origin` names it in errors.
Result<Snapshot> ParseSnapshot(std::string_view bytes, std::string_view origin);
Result<Snapshot> ReadSnapshot(std::unique_ptr<ByteSource> source, std::string_view origin);

}  // namespace headroom::observe
