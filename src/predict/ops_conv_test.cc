// SPDX-License-Identifier: Apache-2.0
//
// Sizes of a recorded trace: ViT-base, 32 images, bf16, on an H200.
#include <gtest/gtest.h>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr DType kBf16 = DType::kBFloat16;

class ConvolutionTest : public testing::Test {
 protected:
  ConvolutionTest() : runtime_(IdealPlatform()) {}
  ~ConvolutionTest() override { runtime_.TakeLedger(); }

  static Platform IdealPlatform() {
    Platform platform = MeasuredPlatform();
    platform.allocator.backend = AllocatorOptions::Backend::kIdeal;
    return platform;
  }
  Tensor Leaf(const Shape& shape) {
    Tensor leaf = Empty(runtime_, shape, kBf16);
    leaf.impl()->leaf_requires_grad = true;
    return leaf;
  }
  // What the peak since the last mark had on top of `before`.
  int64_t PeakOver(Bytes before) {
    runtime_.ledger().Mark("measured", 1);
    return (runtime_.ledger().marks().back().peak_allocated - before).count();
  }

  Runtime runtime_;
};

TEST_F(ConvolutionTest, WorksOnPaddedNhwcCopies) {
  const Tensor images = Empty(runtime_, {32, 3, 224, 224}, kBf16);
  const Tensor weight = Leaf({768, 3, 16, 16});
  const Tensor bias = Leaf({768});
  const Bytes before = runtime_.ledger().allocated();
  const Tensor map = Convolution(images, weight, bias, 16, 0);
  EXPECT_EQ(map.shape(), Shape({32, 768, 14, 14}));
  EXPECT_EQ(PeakOver(before), map.bytes().count() + 38'469'648);
}

TEST_F(ConvolutionTest, ComputesNoGradientOfImages) {
  const Tensor images = Empty(runtime_, {32, 3, 224, 224}, kBf16);
  const Tensor weight = Leaf({768, 3, 16, 16});
  const Tensor bias = Leaf({768});
  const Tensor map = Convolution(images, weight, bias, 16, 0);
  const Tensor gradient = EmptyLike(map);
  runtime_.ledger().Mark("forward", 1);
  const Bytes before = runtime_.ledger().allocated();
  Backward(runtime_, map, gradient);
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(bias.grad().defined());
  EXPECT_FALSE(images.grad().defined());
  EXPECT_EQ(PeakOver(before), weight.bytes().count() + 57'344'144);
}

TEST_F(ConvolutionTest, PadsAndStrides) {
  const Tensor features = Empty(runtime_, {2, 80, 3000}, kBf16);
  const Tensor map = Convolution(features, Leaf({512, 80, 3}), Leaf({512}), 2, 1);
  EXPECT_EQ(map.shape(), Shape({2, 512, 1500}));
}

}  // namespace
}  // namespace headroom::predict
