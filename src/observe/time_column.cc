// SPDX-License-Identifier: Apache-2.0
#include "observe/time_column.h"

#include <utility>

namespace headroom::observe {

void TimeColumn::Reserve(size_t events) {
  offsets_.reserve(events);
  starts_.reserve(events / kStretch + 1);
}

void TimeColumn::Add(uint64_t time) {
  const size_t at = size();
  if (!full_.empty()) {
    full_.push_back(time);
    return;
  }
  if (at % kStretch == 0) starts_.push_back(time);
  offsets_.push_back(0);
  Set(at, time);
}

void TimeColumn::Set(size_t at, uint64_t time) {
  if (full_.empty()) {
    const auto offset = static_cast<int64_t>(time - starts_[at / kStretch]);
    if (std::in_range<int32_t>(offset)) {
      offsets_[at] = static_cast<int32_t>(offset);
      return;
    }
    Widen();
  }
  full_[at] = time;
}

uint32_t TimeColumn::FindFrom(uint64_t time, uint32_t from, uint32_t end) const {
  while (from < end) {
    const uint32_t middle = from + (end - from) / 2;
    if ((*this)[middle] < time) {
      from = middle + 1;
    } else {
      end = middle;
    }
  }
  return from;
}

void TimeColumn::Widen() {
  std::vector<uint64_t> full;
  full.reserve(offsets_.capacity());
  for (size_t i = 0; i < offsets_.size(); ++i) full.push_back((*this)[i]);
  full_ = std::move(full);
  offsets_ = {};
  starts_ = {};
}

}  // namespace headroom::observe
