// SPDX-License-Identifier: Apache-2.0
#include "graph/arena.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

namespace headroom::graph {
namespace {

using Order = std::vector<size_t>;

int64_t Area(const Buffer& buffer) {
  // In units of the alignment, so that petabytes times ops stay far from overflow.
  return RoundUp(buffer.size, kArenaAlignment).count() / kArenaAlignment.count() *
         (buffer.last - buffer.first + 1);
}
int32_t Duration(const Buffer& buffer) { return buffer.last - buffer.first; }

// A strict order of what is placed first.
using Before = bool (*)(const Buffer&, const Buffer&);
constexpr std::array<Before, 6> kOrders = {
    [](const Buffer& a, const Buffer& b) { return a.size > b.size; },
    [](const Buffer& a, const Buffer& b) { return Area(a) > Area(b); },
    [](const Buffer& a, const Buffer& b) { return Duration(a) > Duration(b); },
    [](const Buffer& a, const Buffer& b) { return a.first < b.first; },
    [](const Buffer& a, const Buffer& b) { return a.last > b.last; },
    [](const Buffer& a, const Buffer& b) {
      return Duration(a) != Duration(b) ? Duration(a) > Duration(b) : a.size > b.size;
    },
};

enum class Fit { kLowest, kTightest };

struct Placed {
  int64_t begin;
  int64_t end;
  int32_t first;
  int32_t last;
};

// Where `size` bytes fit between `obstacles`, which are sorted by begin and may overlap.
int64_t FindGap(const std::vector<Placed>& obstacles, int64_t size, Fit fit) {
  int64_t top = 0;
  int64_t best = -1;
  int64_t best_gap = 0;
  for (const Placed& obstacle : obstacles) {
    const int64_t gap = obstacle.begin - top;
    if (gap >= size && (best < 0 || gap < best_gap)) {
      best = top;
      best_gap = gap;
      if (fit == Fit::kLowest) return best;
    }
    top = std::max(top, obstacle.end);
  }
  return best >= 0 ? best : top;
}

// One plan. Gives up, with an empty result, once it is no lower than `limit`.
std::vector<Bytes> Place(std::span<const Buffer> buffers, const Order& order, Fit fit, Bytes limit,
                         Bytes& size) {
  std::vector<Bytes> offsets(buffers.size());
  std::vector<Placed> placed;  // by begin
  placed.reserve(buffers.size());
  std::vector<Placed> obstacles;
  size = Bytes(0);
  for (const size_t index : order) {
    const Buffer& buffer = buffers[index];
    const int64_t bytes = RoundUp(buffer.size, kArenaAlignment).count();
    if (bytes == 0) continue;
    obstacles.clear();
    for (const Placed& other : placed) {
      if (buffer.first <= other.last && other.first <= buffer.last) obstacles.push_back(other);
    }
    const int64_t begin = FindGap(obstacles, bytes, fit);
    size = std::max(size, Bytes(begin + bytes));
    if (size >= limit) return {};
    const Placed here{begin, begin + bytes, buffer.first, buffer.last};
    const auto at =
        std::upper_bound(placed.begin(), placed.end(), here,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
    placed.insert(at, here);
    offsets[index] = Bytes(begin);
  }
  return offsets;
}

}  // namespace

double ArenaPlan::Ratio() const {
  return lower_bound.count() == 0
             ? 1.0
             : static_cast<double>(size.count()) / static_cast<double>(lower_bound.count());
}

Bytes LowerBound(std::span<const Buffer> buffers) {
  std::map<int32_t, int64_t> change;
  for (const Buffer& buffer : buffers) {
    const int64_t bytes = RoundUp(buffer.size, kArenaAlignment).count();
    change[buffer.first] += bytes;
    change[buffer.last + 1] -= bytes;
  }
  int64_t live = 0;
  int64_t most = 0;
  for (const auto& [op, bytes] : change) {
    live += bytes;
    most = std::max(most, live);
  }
  return Bytes(most);
}

ArenaPlan PlanArena(std::span<const Buffer> buffers) {
  ArenaPlan plan;
  plan.offsets.resize(buffers.size());
  plan.lower_bound = LowerBound(buffers);
  if (plan.lower_bound.count() == 0) return plan;
  Bytes best(int64_t{1} << 62);
  for (const Before before : kOrders) {
    Order order(buffers.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(buffers[a], buffers[b]); });
    for (const Fit fit : {Fit::kLowest, Fit::kTightest}) {
      Bytes size;
      std::vector<Bytes> offsets = Place(buffers, order, fit, best, size);
      if (offsets.empty()) continue;
      best = size;
      plan.offsets = std::move(offsets);
      if (best == plan.lower_bound) break;
    }
    if (best == plan.lower_bound) break;
  }
  plan.size = best;
  return plan;
}

}  // namespace headroom::graph
