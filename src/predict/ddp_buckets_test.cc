// SPDX-License-Identifier: Apache-2.0
#include "predict/ddp_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace headroom::predict {
namespace {

using ::testing::ElementsAre;

std::vector<DdpGradient> Gradients(std::initializer_list<int64_t> kib) {
  std::vector<DdpGradient> gradients;
  for (const int64_t size : kib) gradients.push_back({KiB(size), DType::kFloat32});
  return gradients;
}

TEST(DdpBuckets, FillTheFirstToASmallerLimit) {
  const auto buckets =
      AssignDdpBuckets(Gradients({600, 600, 20000, 20000, 1000}), std::vector{MiB(1), MiB(25)});
  EXPECT_THAT(buckets, ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4)));
}

TEST(DdpBuckets, AreOneWithoutALimit) {
  const auto buckets = AssignDdpBuckets(Gradients({600, 600, 20000}),
                                        std::vector{Bytes(std::numeric_limits<int64_t>::max())});
  EXPECT_THAT(buckets, ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(DdpBuckets, KeepTypesApart) {
  std::vector<DdpGradient> gradients = Gradients({100, 100, 100});
  gradients[1].dtype = DType::kBFloat16;
  const auto buckets = AssignDdpBuckets(gradients, std::vector{MiB(1)});
  EXPECT_THAT(buckets, ElementsAre(ElementsAre(0, 2), ElementsAre(1)));
}

TEST(DdpBuckets, GiveAGradientBeyondTheLimitABucketOfItsOwn) {
  const auto buckets = AssignDdpBuckets(Gradients({90000, 100, 100}), std::vector{MiB(1), MiB(25)});
  EXPECT_THAT(buckets, ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

}  // namespace
}  // namespace headroom::predict
