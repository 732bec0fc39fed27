// SPDX-License-Identifier: Apache-2.0
//
// What gather, repeat and unbind keep for backward and what they give back.
#include <gtest/gtest.h>

#include <vector>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr DType kF32 = DType::kFloat32;

Platform IdealPlatform() {
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  return platform;
}

class GatherTest : public testing::Test {
 protected:
  GatherTest() : runtime_(IdealPlatform()) {}
  ~GatherTest() override { runtime_.TakeLedger(); }

  Tensor Leaf(const Shape& shape) {
    Tensor leaf = Empty(runtime_, shape, kF32);
    leaf.impl()->leaf_requires_grad = true;
    return leaf;
  }
  int64_t Live() { return runtime_.ledger().allocated().count() >> 20; }
  void RunBackward(const Tensor& root) { Backward(runtime_, root, EmptyLike(root)); }

  Runtime runtime_;
};

TEST_F(GatherTest, KeepsItsInputAndIndexUntilBackward) {
  const Tensor x = Leaf({512, 512});  // 1 MiB
  Tensor y = AddScalar(x);
  {
    const Tensor index = Empty(runtime_, {512, 256}, DType::kInt64);  // 1 MiB
    y = Gather(y, index);                                             // 0.5 MiB
  }
  EXPECT_EQ(y.shape(), (Shape{512, 256}));
  EXPECT_EQ(Live(), 3);
  RunBackward(y);
  y = Tensor();
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(Live(), 2);
}

TEST_F(GatherTest, SumsTheCopiesOfARepeat) {
  const Tensor x = Leaf({12, 64, 64});
  const Tensor y = RepeatFirst(x, 4);
  EXPECT_EQ(y.shape(), (Shape{48, 64, 64}));
  RunBackward(y);
  EXPECT_EQ(x.grad().shape(), x.shape());
}

TEST_F(GatherTest, CopiesEvenForOneRepeat) {
  const Tensor x = Leaf({512, 512});
  const Tensor y = RepeatFirst(x, 1);
  EXPECT_EQ(Live(), 2);
}

TEST_F(GatherTest, UnbindsIntoViews) {
  const Tensor x = Leaf({4, 3, 512, 512});  // 12 MiB
  const std::vector<Tensor> parts = Unbind(x, -3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[1].shape(), (Shape{4, 512, 512}));
  EXPECT_EQ(Live(), 12);
}

TEST_F(GatherTest, StacksGradientsOfUnboundParts) {
  const Tensor x = Leaf({4, 3, 512, 512});
  {
    const std::vector<Tensor> parts = Unbind(x, 1);
    RunBackward(Add(parts[0], parts[2]));  // the middle part gets zeros
  }
  EXPECT_EQ(x.grad().shape(), x.shape());
  EXPECT_EQ(Live(), 24);
}

}  // namespace
}  // namespace headroom::predict
