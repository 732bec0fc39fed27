// SPDX-License-Identifier: Apache-2.0
#include "graph/arena.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

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
constexpr std::array<Before, 8> kOrders = {
    [](const Buffer& a, const Buffer& b) { return a.size > b.size; },
    [](const Buffer& a, const Buffer& b) { return Area(a) > Area(b); },
    [](const Buffer& a, const Buffer& b) { return Duration(a) > Duration(b); },
    [](const Buffer& a, const Buffer& b) { return a.first < b.first; },
    [](const Buffer& a, const Buffer& b) { return a.last > b.last; },
    [](const Buffer& a, const Buffer& b) {
      return a.last != b.last ? a.last > b.last : a.size > b.size;
    },
    [](const Buffer& a, const Buffer& b) {
      return a.last != b.last ? a.last > b.last : a.first < b.first;
    },
    [](const Buffer& a, const Buffer& b) {
      return Duration(a) != Duration(b) ? Duration(a) > Duration(b) : a.size > b.size;
    },
};

// kEnds: what lives to the end, as gradients do, hangs from the ceiling in the order of its birth,
// and the rest, as activations do, stands on the ground.
enum class Fit { kLowest, kTightest, kEnds };

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
      if (fit != Fit::kTightest) return best;
    }
    top = std::max(top, obstacle.end);
  }
  return best >= 0 ? best : top;
}

// The highest place below the ceiling, or the lowest at all where there is none.
int64_t FindHighest(const std::vector<Placed>& obstacles, int64_t size, int64_t ceiling) {
  int64_t top = 0;
  int64_t best = -1;
  for (const Placed& obstacle : obstacles) {
    const int64_t end = std::min(obstacle.begin, ceiling);
    if (end - top >= size) best = end - size;
    top = std::max(top, obstacle.end);
  }
  if (ceiling - top >= size) best = ceiling - size;
  return best >= 0 ? best : FindGap(obstacles, size, Fit::kLowest);
}

// One plan. Gives up, with an empty result, once it is no lower than `limit`.
std::vector<Bytes> Place(std::span<const Buffer> buffers, const Order& order, Fit fit,
                         Bytes ceiling, Bytes limit, Bytes& size) {
  int32_t end = 0;
  for (const Buffer& buffer : buffers) end = std::max(end, buffer.last);
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
    const bool hangs = fit == Fit::kEnds && buffer.last == end;
    const int64_t begin =
        hangs ? FindHighest(obstacles, bytes, ceiling.count()) : FindGap(obstacles, bytes, fit);
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

namespace {

// Tries orders and keeps the lowest plan.
class Search {
 public:
  explicit Search(std::span<const Buffer> buffers) : buffers_(buffers) {
    plan_.offsets.resize(buffers.size());
    plan_.lower_bound = LowerBound(buffers);
  }

  ArenaPlan Run() {
    if (plan_.lower_bound.count() == 0) return plan_;
    for (const Before before : kOrders) {
      Order order(buffers_.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return before(buffers_[a], buffers_[b]); });
      Try(order, best_);
      if (best_ == plan_.lower_bound) break;
    }
    plan_.size = best_;
    Improve();
    return std::move(plan_);
  }

 private:
  // Keeps what is lower than the limit.
  void Try(const Order& order, Bytes limit) {
    for (const Fit fit : {Fit::kLowest, Fit::kTightest, Fit::kEnds}) {
      Bytes size;
      std::vector<Bytes> offsets =
          Place(buffers_, order, fit, plan_.lower_bound, std::min(limit, best_ + Bytes(1)), size);
      if (offsets.empty()) continue;
      best_ = size;
      plan_.size = size;
      plan_.offsets = std::move(offsets);
      order_ = order;
      if (best_ == plan_.lower_bound) break;
    }
  }

  // What lies above the bound found no better place because it came late: one of those goes before
  // some other, again and again. As many tries as take a tenth of a second.
  void Improve() {
    constexpr double kGoodEnough = 1.001;
    constexpr int64_t kMostTries = 400;
    constexpr int64_t kMostWork = 1 << 25;  // pairs of buffers
    const auto count = static_cast<int64_t>(buffers_.size());
    const int64_t tries = std::min(kMostTries, kMostWork / std::max<int64_t>(count * count, 1));
    std::minstd_rand random(1);
    for (int64_t i = 0; i < tries && plan_.Ratio() > kGoodEnough; ++i) {
      std::vector<size_t> high;  // positions in the order
      for (size_t k = 0; k < order_.size(); ++k) {
        if (End(order_[k]) > plan_.lower_bound) high.push_back(k);
      }
      Order order = order_;
      const size_t late = high[random() % high.size()];
      const auto from = order.begin() + static_cast<std::ptrdiff_t>(late);
      const auto to = order.begin() + static_cast<std::ptrdiff_t>(random() % (late + 1));
      std::rotate(to, from, from + 1);
      Try(order, best_ + Bytes(1));
    }
  }

  Bytes End(size_t buffer) const {
    return plan_.offsets[buffer] + RoundUp(buffers_[buffer].size, kArenaAlignment);
  }

  std::span<const Buffer> buffers_;
  ArenaPlan plan_;
  Order order_;
  Bytes best_{int64_t{1} << 62};
};

}  // namespace

ArenaPlan PlanArena(std::span<const Buffer> buffers) { return Search(buffers).Run(); }

}  // namespace headroom::graph
