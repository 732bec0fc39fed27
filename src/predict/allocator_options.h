// SPDX-License-Identifier: Apache-2.0
//
// AllocatorOptions: PYTORCH_ALLOC_CONF, as far as it decides how much is reserved.
#pragma once

#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

struct AllocatorOptions {
  enum class Backend { kNative, kExpandableSegments, kIdeal };
  Backend backend = Backend::kNative;
  Bytes max_split_size{-1};          // max_split_size_mb; negative: unlimited, the default
  int roundup_power2_divisions = 0;  // 0: off, the default
  double garbage_collection_threshold = 0;

  bool operator==(const AllocatorOptions&) const = default;
};

// Reads "expandable_segments:True,max_split_size_mb:128". Fails on unknown keys, naming the
// nearest.
Result<AllocatorOptions> ParseAllocConf(std::string_view text);

}  // namespace headroom
