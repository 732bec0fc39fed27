// SPDX-License-Identifier: Apache-2.0
//
// PYTORCH_ALLOC_CONF: c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h,
// PyTorch 2.11.0.

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "base/format.h"
#include "base/nearest.h"
#include "predict/predict.h"

namespace headroom {
namespace {

constexpr std::array<std::string_view, 13> kKeys = {
    "expandable_segments",
    "max_split_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "max_non_split_rounding_mb",
    "backend",
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "graph_capture_record_stream_reuse",
    "large_segment_size_mb",
    "per_process_memory_fraction",
};

std::string_view Trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

template <typename Number>
bool Parse(std::string_view text, Number& number) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && end == text.data() + text.size();
}

Error Bad(std::string_view key, std::string_view value, std::string_view wanted) {
  return Error::BadInput(Format("--alloc-conf: {}:{} is not {}", key, value, wanted));
}

Status Apply(std::string_view key, std::string_view value, AllocatorOptions& options) {
  if (key == "expandable_segments") {
    if (value != "True" && value != "False") return Bad(key, value, "True or False");
    if (value == "True") options.backend = AllocatorOptions::Backend::kExpandableSegments;
    return {};
  }
  if (key == "max_split_size_mb") {
    int64_t mb = 0;
    // kLargeBuffer: PyTorch refuses less than 20 MiB.
    if (!Parse(value, mb) || mb <= 20 || mb > (1 << 24))
      return Bad(key, value, "more than 20 (MiB)");
    options.max_split_size = MiB(mb);
    return {};
  }
  if (key == "roundup_power2_divisions") {
    int divisions = 0;
    const bool is_number = Parse(value, divisions);
    if (!is_number || divisions < 1 || divisions > 64 || (divisions & (divisions - 1)) != 0) {
      return Bad(key, value, "a power of two up to 64 (lists by size are not modelled)");
    }
    options.roundup_power2_divisions = divisions;
    return {};
  }
  if (key == "garbage_collection_threshold") {
    double threshold = 0;
    if (!Parse(value, threshold) || !(threshold > 0 && threshold < 1)) {
      return Bad(key, value, "between 0 and 1");
    }
    options.garbage_collection_threshold = threshold;
    return {};
  }
  if (key == "backend" && value != "native") {
    return Error::Unsupported(
        Format("--alloc-conf: backend:{} is not modelled, only native", value));
  }
  if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
    return Error::BadInput(
        Format("--alloc-conf: unknown setting \"{}\"{}", key, DidYouMean(key, kKeys)));
  }
  return {};  // known, and without effect on how much is reserved by default
}

}  // namespace

Result<AllocatorOptions> ParseAllocConf(std::string_view text) {
  AllocatorOptions options;
  while (!text.empty()) {
    // A list in brackets holds commas of its own.
    size_t end = 0;
    for (int depth = 0; end < text.size() && (text[end] != ',' || depth > 0); ++end) {
      if (text[end] == '[') ++depth;
      if (text[end] == ']') --depth;
    }
    const std::string_view item = Trim(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    if (item.empty()) continue;
    const size_t colon = item.find(':');
    if (colon == std::string_view::npos) {
      return Error::BadInput(Format("--alloc-conf: \"{}\" is not KEY:VALUE", item));
    }
    HEADROOM_RETURN_IF_ERROR(
        Apply(Trim(item.substr(0, colon)), Trim(item.substr(colon + 1)), options));
  }
  return options;
}

}  // namespace headroom
