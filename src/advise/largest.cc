// SPDX-License-Identifier: Apache-2.0
#include "advise/largest.h"

#include <algorithm>

namespace headroom {
namespace {

// How many values above the answer are verified to be too large.
constexpr int64_t kNeighbours = 4;

struct Search {
  const std::function<Result<Fit>(int64_t)>& fit;
  bool over_memory = false;

  Result<bool> Fits(int64_t value) {
    HEADROOM_ASSIGN_OR_RETURN(const Fit answer, fit(value));
    over_memory |= answer == Fit::kTooLarge;
    return answer == Fit::kFits;
  }
};

}  // namespace

Result<Largest> FindLargest(const std::function<Result<Fit>(int64_t)>& fit, int64_t start,
                            int64_t most) {
  Search search{fit};
  int64_t fits = 0;  // 0: none known
  int64_t fails = most + 1;
  for (int64_t at = std::clamp<int64_t>(start, 1, most); fits == 0 && at >= 1; at /= 2) {
    HEADROOM_ASSIGN_OR_RETURN(const bool good, search.Fits(at));
    (good ? fits : fails) = at;
  }
  if (fits == 0) return Largest{std::nullopt, search.over_memory};
  while (fails > most && fits < most) {
    const int64_t at = std::min(most, 2 * fits);
    HEADROOM_ASSIGN_OR_RETURN(const bool good, search.Fits(at));
    (good ? fits : fails) = at;
  }
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    HEADROOM_ASSIGN_OR_RETURN(const bool good, search.Fits(middle));
    (good ? fits : fails) = middle;
  }
  for (int64_t at = fits + 2; at <= std::min(most, fits + kNeighbours); ++at) {
    HEADROOM_ASSIGN_OR_RETURN(const bool good, search.Fits(at));
    if (good) fits = at;
  }
  return Largest{fits, fits < most && search.over_memory};
}

}  // namespace headroom
