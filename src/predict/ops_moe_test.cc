// SPDX-License-Identifier: Apache-2.0
//
// Sizes that PyTorch 2.11.0 was recorded to allocate on an H200, for 2048 tokens and two experts
// each.
#include "predict/ops_moe.h"

#include <gtest/gtest.h>

#include <vector>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

class OpsMoeTest : public testing::Test {
 protected:
  OpsMoeTest() : runtime_(IdealPlatform()) {}
  ~OpsMoeTest() override { runtime_.TakeLedger(); }

  static Tensor Leaf(Tensor tensor) {
    tensor.impl()->leaf_requires_grad = true;
    return tensor;
  }
  static Platform IdealPlatform() {
    Platform platform = MeasuredPlatform();
    platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
    return platform;
  }
  // What was asked for since the last call, in order.
  std::vector<int64_t> Asked() {
    std::vector<int64_t> sizes;
    const auto& events = runtime_.ledger().events();
    for (; seen_ < events.size(); ++seen_) {
      if (events[seen_].type == MemoryEvent::Type::kAlloc) sizes.push_back(events[seen_].bytes);
    }
    return sizes;
  }
  void RunBackward(const Tensor& root) {
    const Tensor gradient = EmptyLike(root);
    Asked();
    Backward(runtime_, root, gradient);
  }

  Runtime runtime_;
  size_t seen_ = 0;
};

TEST_F(OpsMoeTest, SortsShortListsInOneBlockAndLongOnesThroughCub) {
  const Tensor few = Empty(runtime_, {4096}, DType::kInt64);
  Asked();
  SortIndices(few);
  EXPECT_EQ(Asked(), (std::vector<int64_t>{32768, 32768, 32768}));
  const Tensor many = Empty(runtime_, {16384}, DType::kInt64);
  Asked();
  SortIndices(many);
  EXPECT_EQ(Asked(), (std::vector<int64_t>{131072, 131072, 131072, 283135}));
}

TEST_F(OpsMoeTest, AccumulatesGatheredRowsSortedByTheBitsTheyNeed) {
  const Tensor x = Leaf(Empty(runtime_, {2048, 1024}, DType::kFloat32));
  const Tensor rows = GatherRows(x, Empty(runtime_, {4096}, DType::kInt64));
  RunBackward(rows);
  EXPECT_EQ(Asked(), (std::vector<int64_t>{8388608, 32768, 32768, 32768, 32768, 32768, 71167}));
}

TEST_F(OpsMoeTest, KeepsTheDividendOnlyWhereTheDivisorWantsAGradient) {
  const Tensor leaf = Leaf(Empty(runtime_, {2048, 8}, DType::kFloat32));
  const Tensor values = TopK(leaf, 2).values;
  const int last[] = {-1};
  const Tensor sum = Sum(values, last, true);
  Asked();
  Tensor divided = DivInPlace(values, sum);
  EXPECT_EQ(Asked(), (std::vector<int64_t>{16384}));
  const Tensor constant = Empty(runtime_, {2048, 1}, DType::kFloat32);
  Asked();
  divided = DivInPlace(divided, constant);
  EXPECT_TRUE(Asked().empty());
}

TEST_F(OpsMoeTest, GivesTheGradientOfAGroupedWeightItsOwnLayout) {
  const Tensor weight = Leaf(Empty(runtime_, {8, 512, 256}, DType::kFloat32));
  const Tensor rows = Leaf(Empty(runtime_, {64, 256}, DType::kFloat32));
  const Tensor offsets = Empty(runtime_, {8}, DType::kInt32);
  const Tensor out = GroupedMm(rows, weight, offsets);
  EXPECT_EQ(out.shape(), (Shape{64, 512}));
  RunBackward(out);
  // Between the two, the workspace of the backward thread's first product.
  EXPECT_EQ(Asked(), (std::vector<int64_t>{8 * 512 * 256 * 4, 32 << 20, 64 * 256 * 4}));
  EXPECT_TRUE(weight.grad().is_contiguous());
}

}  // namespace
}  // namespace headroom::predict
