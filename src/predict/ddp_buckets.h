// SPDX-License-Identifier: Apache-2.0
//
// How DistributedDataParallel groups gradients into buckets.
//
// Parameters fill a bucket until it has reached its limit; the first bucket's limit is smaller, so
// that the first reduction starts early. Each type fills buckets of its own:
//
//   limits 1 MiB, 25 MiB; gradients of 0.6, 0.6, 20, 20, 1 MiB  ->  {0.6, 0.6} {20, 20} {1}
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"

namespace headroom::predict {

struct DdpGradient {
  Bytes bytes;
  DType dtype = DType::kFloat32;
};

// compute_bucket_assignment_by_size: positions of `gradients` by bucket, the buckets in the order
// of their first gradient. The limits hold for the first bucket, the second, …; the last one for
// all that follow. REQUIRES: `limits` is not empty.
std::vector<std::vector<size_t>> AssignDdpBuckets(std::span<const DdpGradient> gradients,
                                                  std::span<const Bytes> limits);

}  // namespace headroom::predict
