// SPDX-License-Identifier: Apache-2.0
//
// torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size, PyTorch 2.11.0.
#include "predict/ddp_buckets.h"

#include <algorithm>
#include <map>

namespace headroom::predict {

std::vector<std::vector<size_t>> AssignDdpBuckets(std::span<const DdpGradient> gradients,
                                                  std::span<const Bytes> limits) {
  struct Filling {
    std::vector<size_t> positions;
    Bytes bytes;
    size_t limit = 0;
  };
  std::vector<std::vector<size_t>> buckets;
  std::map<DType, Filling> filling;
  for (size_t i = 0; i < gradients.size(); ++i) {
    Filling& bucket = filling[gradients[i].dtype];
    bucket.positions.push_back(i);
    bucket.bytes += gradients[i].bytes;
    if (bucket.bytes < limits[bucket.limit]) continue;
    buckets.push_back(std::move(bucket.positions));
    bucket.positions.clear();
    bucket.bytes = Bytes(0);
    bucket.limit = std::min(bucket.limit + 1, limits.size() - 1);
  }
  for (auto& [dtype, bucket] : filling) {
    if (!bucket.positions.empty()) buckets.push_back(std::move(bucket.positions));
  }
  std::sort(buckets.begin(), buckets.end());
  return buckets;
}

}  // namespace headroom::predict
