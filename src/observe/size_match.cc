// SPDX-License-Identifier: Apache-2.0
#include "observe/size_match.h"

#include "observe/classify.h"

namespace headroom::observe {

ParameterSizes::ParameterSizes(std::span<const NamedSize> parameters) : parameters_(parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const int64_t bytes = parameters[i].bytes.count();
    if (parameters[i].is_buffer) {
      ++buffers_[bytes];
    } else {
      by_size_[bytes].push_back(static_cast<uint32_t>(i));
    }
  }
}

SizeCounts ParameterSizes::Weights() const {
  SizeCounts counts;
  for (const auto& [bytes, parameters] : by_size_) {
    counts[bytes] = static_cast<int64_t>(parameters.size());
  }
  return counts;
}

bool ParameterSizes::TakeBuffer(int64_t bytes) {
  const auto found = buffers_.find(bytes);
  if (found == buffers_.end() || found->second == 0) return false;
  --found->second;
  return true;
}

uint32_t ParameterSizes::Namer::Next(int64_t bytes) {
  const auto found = by_size_->find(bytes);
  if (found == by_size_->end()) return 0;
  const std::vector<uint32_t>& parameters = found->second;
  const size_t turn = used_[bytes]++ % parameters.size();
  const size_t at = order_ == Order::kForward ? turn : parameters.size() - 1 - turn;
  return parameters[at] + 1;
}

}  // namespace headroom::observe
