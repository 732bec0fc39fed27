// SPDX-License-Identifier: Apache-2.0
//
// The strings that mean something in a snapshot, numbered. They are the first entries of the
// snapshot's string table, in this order, so a key is recognised by its number.
#pragma once

#include <cstdint>
#include <string_view>

#include "observe/string_table.h"

namespace headroom::observe {

// Dict keys. Number 0 of the string table is "".
enum class SnapshotKey : uint32_t {
  kNone,
  kAction,
  kAddr,
  kSize,
  kStream,
  kTimeUs,
  kCompileContext,
  kUserMetadata,
  kPoolId,
  kFrames,
  kDeviceFree,
  kCategory,
  kForwardFrames,
  kSegmentPoolId,
  kName,
  kFilename,
  kLine,
  kFxNodeName,
  kFxNodeTarget,
  kDevice,
  kAddress,
  kTotalSize,
  kRequestedSize,
  kSegmentType,
  kIsExpandable,
  kBlocks,
  kState,
  kHistory,
  kRealSize,
  kStage,
  kSegments,
  kDeviceTraces,
  kAllocatorSettings,
  kExternalAnnotations,
  kHostSegments,
  kHostTraces,
  kCudaAllocConf,
  kAllocConf,
  kMaxSplitSize,
  kGarbageCollectionThreshold,
  kExpandableSegments,
  kRoundupPower2Divisions,
  kTraceAllocOverflowed,
  kTraceAllocMaxEntries,
  kEnd,
};
static_assert(static_cast<int>(SnapshotKey::kEnd) <= 64, "a set of keys is one word");

// Values: they follow the keys.
enum class SnapshotWord : uint32_t {
  // In the order of Action.
  kFirstAction = static_cast<uint32_t>(SnapshotKey::kEnd),
  kOtherAction = kFirstAction + 10,
  kActiveAllocated = kOtherAction,
  kActivePendingFree,
  kActiveAwaitingFree,
  kInactive,
  kLarge,
  kStart,
  kEnd,
};

// All of them, from number 1 on.
inline constexpr std::string_view kSnapshotStrings[] = {
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "compile_context",
    "user_metadata",
    "pool_id",
    "frames",
    "device_free",
    "category",
    "forward_frames",
    "segment_pool_id",
    "name",
    "filename",
    "line",
    "fx_node_name",
    "fx_node_target",
    "device",
    "address",
    "total_size",
    "requested_size",
    "segment_type",
    "is_expandable",
    "blocks",
    "state",
    "history",
    "real_size",
    "stage",
    "segments",
    "device_traces",
    "allocator_settings",
    "external_annotations",
    "host_segments",
    "host_traces",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "max_split_size",
    "garbage_collection_threshold",
    "expandable_segments",
    "roundup_power2_divisions",
    "trace_alloc_overflowed",
    "trace_alloc_max_entries",
    // actions
    "alloc",
    "free_requested",
    "free_completed",
    "free",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    // states, segment types, stages
    "active_allocated",
    "active_pending_free",
    "active_awaiting_free",
    "inactive",
    "large",
    "START",
};
static_assert(std::size(kSnapshotStrings) + 1 == static_cast<size_t>(SnapshotWord::kEnd));

inline StringId IdOf(SnapshotKey key) { return StringId(static_cast<uint32_t>(key)); }
inline StringId IdOf(SnapshotWord word) { return StringId(static_cast<uint32_t>(word)); }

}  // namespace headroom::observe
