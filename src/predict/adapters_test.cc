// SPDX-License-Identifier: Apache-2.0
#include "predict/adapters.h"

#include <gtest/gtest.h>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

class AdaptersTest : public testing::Test {
 protected:
  Tensor Parameter(const Shape& shape, DType dtype, bool trained) {
    Tensor tensor = Empty(runtime_, shape, dtype);
    tensor.impl()->leaf_requires_grad = trained;
    return tensor;
  }
  LoraAdapter Adapter(int64_t rank, int64_t in, int64_t out) {
    LoraAdapter adapter;
    adapter.a = Parameter({rank, in}, DType::kFloat32, true);
    adapter.b = Parameter({out, rank}, DType::kFloat32, true);
    return adapter;
  }

  Runtime runtime_{MeasuredPlatform()};
};

TEST_F(AdaptersTest, GivesTheDtypeOfTheBase) {
  const Tensor weight = Parameter({64, 32}, DType::kBFloat16, false);
  const LoraAdapter adapter = Adapter(4, 32, 64);
  const Tensor x = Empty(runtime_, {8, 32}, DType::kBFloat16);
  const Tensor y = WithAdapter(
      adapter, x, [&](const Tensor& input) { return LinearOp(input, weight, Tensor()); });
  EXPECT_EQ(y.dtype(), DType::kBFloat16);
  EXPECT_EQ(y.shape(), (Shape{8, 64}));
  EXPECT_TRUE(y.requires_grad());
}

TEST_F(AdaptersTest, OnlyTheAdapterGetsGradients) {
  const Tensor weight = Parameter({64, 32}, DType::kFloat32, false);
  const LoraAdapter adapter = Adapter(4, 32, 64);
  const Tensor x = Empty(runtime_, {8, 32}, DType::kFloat32);
  {
    const Tensor y = WithAdapter(
        adapter, x, [&](const Tensor& input) { return LinearOp(input, weight, Tensor()); });
    const Tensor gradient = EmptyLike(y);
    Backward(runtime_, y, gradient);
  }
  EXPECT_TRUE(adapter.a.grad().defined());
  EXPECT_TRUE(adapter.b.grad().defined());
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(AdaptersTest, AnEmbeddingsGradientComesBackInTheLayoutOfA) {
  const LoraAdapter adapter = Adapter(4, 100, 16);
  const Tensor indices = Empty(runtime_, {2, 8}, DType::kInt64);
  const Tensor embedded = Empty(runtime_, {2, 8, 16}, DType::kFloat32);
  {
    const Tensor y = WithEmbeddingAdapter(adapter, indices, embedded);
    EXPECT_EQ(y.shape(), embedded.shape());
    const Tensor gradient = EmptyLike(y);
    Backward(runtime_, y, gradient);
  }
  ASSERT_TRUE(adapter.a.grad().defined());
  EXPECT_EQ(adapter.a.grad().shape(), (Shape{4, 100}));
  EXPECT_TRUE(adapter.a.grad().is_contiguous());
}

}  // namespace
}  // namespace headroom::predict
