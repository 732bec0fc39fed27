// SPDX-License-Identifier: Apache-2.0
//
// Shares no code with the planner, so that a mistake in one is seen by the other.
#include <algorithm>
#include <numeric>

#include "base/format.h"
#include "graph/arena.h"

namespace headroom::graph {
namespace {

struct Event {
  int32_t op;
  bool starts;
  size_t buffer;
};

// Ends of op i before starts of op i + 1; starts of an op before its ends.
std::vector<Event> InOrder(std::span<const Buffer> buffers) {
  std::vector<Event> events;
  events.reserve(2 * buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].size.count() == 0) continue;
    events.push_back({buffers[i].first, true, i});
    events.push_back({buffers[i].last, false, i});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.op != b.op ? a.op < b.op : a.starts && !b.starts;
  });
  return events;
}

Status CheckInside(const Buffer& buffer, Bytes offset, Bytes arena, size_t index) {
  if (offset.count() < 0 || offset.count() % kArenaAlignment.count() != 0) {
    return Error::Internal(Format("buffer {} lies at {}: not aligned", index, offset.count()));
  }
  if (offset + buffer.size > arena) {
    return Error::Internal(Format("buffer {} ends at {}, behind the arena's {} bytes", index,
                                  (offset + buffer.size).count(), arena.count()));
  }
  return {};
}

}  // namespace

Status CheckArena(std::span<const Buffer> buffers, const ArenaPlan& plan) {
  if (plan.offsets.size() != buffers.size()) {
    return Error::Internal(
        Format("{} offsets for {} buffers", plan.offsets.size(), buffers.size()));
  }
  // Sweeps over the ops; `live` is what is alive, sorted by offset, and neighbours suffice.
  std::vector<size_t> live;
  const auto lower = [&](size_t a, size_t b) { return plan.offsets[a] < plan.offsets[b]; };
  for (const Event& event : InOrder(buffers)) {
    const size_t i = event.buffer;
    if (!event.starts) {
      live.erase(std::find(live.begin(), live.end(), i));
      continue;
    }
    HEADROOM_RETURN_IF_ERROR(CheckInside(buffers[i], plan.offsets[i], plan.size, i));
    const auto at = std::upper_bound(live.begin(), live.end(), i, lower);
    const auto clash = [&](size_t below, size_t above) -> Status {
      if (plan.offsets[below] + buffers[below].size <= plan.offsets[above]) return {};
      return Error::Internal(Format("buffers {} and {} overlap at op {}", below, above, event.op));
    };
    if (at != live.begin()) HEADROOM_RETURN_IF_ERROR(clash(*(at - 1), i));
    if (at != live.end()) HEADROOM_RETURN_IF_ERROR(clash(i, *at));
    live.insert(at, i);
  }
  return {};
}

}  // namespace headroom::graph
