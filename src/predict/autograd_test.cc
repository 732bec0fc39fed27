// SPDX-License-Identifier: Apache-2.0
//
// What is alive when: the ledger of small graphs, compared with what PyTorch allocates for them.
#include "predict/autograd.h"

#include <gtest/gtest.h>

#include <vector>

#include "predict/checkpoint.h"
#include "predict/cuda_reduce.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr DType kF32 = DType::kFloat32;

// The sizes of blocks (in units of 1 MiB) as an ideal allocator hands them out.
Platform IdealPlatform() {
  Platform platform = MeasuredPlatform();
  platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
  return platform;
}

class AutogradTest : public testing::Test {
 protected:
  AutogradTest() : runtime_(IdealPlatform()) {}
  ~AutogradTest() override { runtime_.TakeLedger(); }

  // A leaf of n MiB that asks for a gradient.
  Tensor Leaf(int64_t mib) {
    Tensor leaf = Empty(runtime_, {mib << 18}, kF32);
    leaf.impl()->leaf_requires_grad = true;
    return leaf;
  }
  int64_t Live() { return runtime_.ledger().allocated().count() >> 20; }
  void RunBackward(const Tensor& root) { Backward(runtime_, root, EmptyLike(root)); }

  Runtime runtime_;
};

TEST_F(AutogradTest, FreesAnIntermediateThatNothingSaves) {
  const Tensor x = Leaf(8);
  {
    Tensor y = AddScalar(x);  // saves nothing
    y = AddScalar(y);
    EXPECT_EQ(Live(), 16);
  }
  EXPECT_EQ(Live(), 8);
}

TEST_F(AutogradTest, KeepsWhatBackwardNeeds) {
  const Tensor x = Leaf(8);
  Tensor y = Gelu(AddScalar(x));  // gelu saves its input
  EXPECT_EQ(Live(), 24);
  y = Tensor();
  EXPECT_EQ(Live(), 8);
}

TEST_F(AutogradTest, StealsAGradientThatNobodyElseHolds) {
  const Tensor x = Leaf(8);
  const Tensor y = Silu(x);
  RunBackward(y);
  // x, y and the gradient of x, which silu's backward made; nothing was copied.
  EXPECT_EQ(Live(), 24);
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(x.grad().impl()->storage->use_count(), 1);
}

TEST_F(AutogradTest, AddsASecondGradientInPlace) {
  const Tensor x = Leaf(8);
  RunBackward(Silu(x));
  const int64_t before = Live();
  RunBackward(Silu(x));
  EXPECT_EQ(Live(), before);
}

TEST_F(AutogradTest, AddsGradientsThatViewsShowOutOfPlace) {
  // Two consumers through views of one leaf's product: the first gradient to arrive is a view,
  // which keeps its base, so the sum needs memory of its own.
  const Tensor x = Leaf(8);
  const Tensor h = Silu(x);
  const Tensor both =
      Add(View(Silu(View(h, {-1, 256})), {-1}), View(Silu(View(h, {-1, 512})), {-1}));
  RunBackward(both);
  size_t sums = 0;
  for (const MemoryEvent& event : runtime_.ledger().events()) {
    const bool eight = event.type == MemoryEvent::Type::kAlloc && event.bytes == 8 << 20;
    if (eight && event.component == Component::kTemporaries) ++sums;
  }
  // The root's gradient, two of the inner silus, their sum; x's own gradient is no temporary.
  EXPECT_EQ(sums, 3u);
}

TEST_F(AutogradTest, SumsBroadcastDimensionsAway) {
  const Tensor row = [&] {
    Tensor leaf = Empty(runtime_, {1024}, kF32);
    leaf.impl()->leaf_requires_grad = true;
    return leaf;
  }();
  const Tensor x = Empty(runtime_, {2048, 1024}, kF32);
  RunBackward(Add(x, row));
  EXPECT_EQ(row.grad().shape(), (Shape{1024}));
}

TEST_F(AutogradTest, CastsGradientsToTheForwardType) {
  Tensor x = Empty(runtime_, {1 << 19}, DType::kBFloat16);
  x.impl()->leaf_requires_grad = true;
  const Tensor y = Leaf(2);
  RunBackward(Add(x, y));  // bf16 + fp32 = fp32
  EXPECT_EQ(x.grad().dtype(), DType::kBFloat16);
  EXPECT_EQ(y.grad().dtype(), kF32);
}

TEST_F(AutogradTest, AutocastCachesTheCopyOfALeafOnly) {
  Tensor weight = Empty(runtime_, {512, 512}, kF32);
  weight.impl()->leaf_requires_grad = true;
  const Tensor x = Empty(runtime_, {1024, 512}, kF32);
  {
    const AutocastScope autocast(runtime_, true, DType::kBFloat16);
    const Tensor a = LinearOp(x, weight, Tensor());
    const Tensor b = LinearOp(x, weight, Tensor());
    EXPECT_EQ(a.dtype(), DType::kBFloat16);
    EXPECT_EQ(runtime_.autocast.cache.size(), 1u);
  }
  EXPECT_TRUE(runtime_.autocast.cache.empty());
}

TEST_F(AutogradTest, BackwardTakesACublasWorkspaceOfItsOwn) {
  Tensor weight = Empty(runtime_, {512, 512}, kF32);
  weight.impl()->leaf_requires_grad = true;
  const Tensor y = LinearOp(Empty(runtime_, {1024, 512}, kF32), weight, Tensor());
  const auto workspaces = [&] {
    size_t count = 0;
    for (const MemoryEvent& event : runtime_.ledger().events()) {
      count += event.type == MemoryEvent::Type::kAlloc && event.component == Component::kWorkspace;
    }
    return count;
  };
  EXPECT_EQ(workspaces(), 1u);
  RunBackward(y);
  EXPECT_EQ(workspaces(), 2u);
}

// Three gelus in a row, checkpointed: between forward and backward only the input is held.
class CheckpointTest : public AutogradTest, public testing::WithParamInterface<CheckpointKind> {};

Tensor ThreeGelus(const Tensor& x) {
  Tensor y = Gelu(x);
  y = Gelu(y);
  return Gelu(y);
}

TEST_P(CheckpointTest, HoldsOnlyTheInputUntilBackward) {
  const Tensor x = Leaf(8);
  const Tensor h = AddScalar(x);
  const Tensor y = Checkpoint(GetParam(), &ThreeGelus, h);
  const int64_t held = GetParam() == CheckpointKind::kNone ? 40 : 24;
  EXPECT_EQ(Live(), held);  // x, h, y, and without checkpointing two more
  RunBackward(y);
  EXPECT_EQ(x.grad().bytes(), MiB(8));
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointTest,
                         testing::Values(CheckpointKind::kNone, CheckpointKind::kNonReentrant,
                                         CheckpointKind::kReentrant));

TEST_F(AutogradTest, RecomputationStopsAtTheLastSavedTensor) {
  const Tensor x = Leaf(8);
  // add saves nothing: the recomputation need not run it.
  const Tensor y = Checkpoint(
      CheckpointKind::kNonReentrant, [](const Tensor& h) { return AddScalar(Gelu(h)); }, x);
  const size_t before = runtime_.ledger().events().size();
  RunBackward(y);
  size_t activations = 0;
  for (size_t i = before; i < runtime_.ledger().events().size(); ++i) {
    const MemoryEvent& event = runtime_.ledger().events()[i];
    activations += event.type == MemoryEvent::Type::kAlloc && event.bytes == 8 << 20 &&
                   event.component == Component::kActivations;
  }
  EXPECT_EQ(activations, 1u);  // EmptyLike of the root's gradient; gelu's input was at hand
}

TEST_F(AutogradTest, DeepGraphsAreFreedWithoutDeepRecursion) {
  Tensor y = Empty(runtime_, {1}, kF32);
  y.impl()->leaf_requires_grad = true;
  for (int i = 0; i < 200000; ++i) y = AddScalar(y);
  y = Tensor();
  EXPECT_EQ(runtime_.ledger().allocated(), Bytes(0));
}

// Buffers read off traces of PyTorch 2.11.0 on an H200.
TEST_F(AutogradTest, ReductionsSplitOverBlocksAsRecorded) {
  const Gpu& gpu = runtime_.platform().gpu;
  const auto plan = [&](const Shape& shape, std::vector<int> dims, DType dtype = kF32) {
    return PlanReduction(Empty(runtime_, shape, dtype), dims, 4, gpu);
  };
  EXPECT_EQ(plan({2048, 1024}, {0}, DType::kBFloat16).buffer, 16 << 20);
  EXPECT_EQ(plan({2048, 1024}, {0}, DType::kBFloat16).semaphores, 32);
  EXPECT_EQ(plan({2048, 4096}, {0}, DType::kBFloat16).buffer, 64 << 20);
  EXPECT_EQ(plan({32000, 768}, {0}).buffer, 138412032);
  EXPECT_EQ(plan({32000, 768}, {0, 1}).buffer, 2112);
  EXPECT_EQ(plan({768, 768}, {0, 1}).buffer, 288);
  EXPECT_EQ(plan({4, 2}, {0}).buffer, 0);
  EXPECT_EQ(plan({2048, 768}, {1}).buffer, 0);
}

TEST_F(AutogradTest, ReshapeCopiesOnlyWhenStridesForbidAView) {
  const Tensor x = Empty(runtime_, {4, 512, 16, 64}, kF32);
  const Tensor heads = Transpose(x, 1, 2);
  EXPECT_EQ(Reshape(Transpose(heads, 1, 2), {4, 512, 1024}).impl()->storage.get(),
            x.impl()->storage.get());
  EXPECT_NE(Reshape(heads, {64, 512, 64}).impl()->storage.get(), x.impl()->storage.get());
  EXPECT_EQ(View(x, {-1, 64}).shape(), (Shape{4 * 512 * 16, 64}));
}

TEST_F(AutogradTest, ElementwiseOutputsKeepTheOrderOfTheirInputs) {
  const Tensor heads = Transpose(Empty(runtime_, {4, 512, 16, 64}, kF32), 1, 2);
  const Tensor table = Empty(runtime_, {1, 1, 512, 64}, kF32);
  const Tensor y = Mul(heads, table);
  EXPECT_EQ(y.strides(), heads.strides());
  EXPECT_TRUE(Transpose(y, 1, 2).is_contiguous());
}

}  // namespace
}  // namespace headroom::predict
