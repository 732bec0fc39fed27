// SPDX-License-Identifier: Apache-2.0
#include "predict/quantization.h"

#include <gtest/gtest.h>

#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

class QuantizationTest : public testing::Test {
 protected:
  std::shared_ptr<const QuantizedMatrix> Matrix(const Quantization& how) {
    const Tensor weight = Empty(runtime_, {4096, 4096}, DType::kBFloat16);
    return Quantize(weight, how, dynamic_map_);
  }
  int64_t Live() { return runtime_.ledger().allocated().count(); }

  Runtime runtime_{MeasuredPlatform()};
  Tensor dynamic_map_;
};

constexpr Quantization kNf4 = {
    .kind = Quantization::Kind::kNf4, .double_quant = true, .compute_dtype = DType::kBFloat16};

TEST_F(QuantizationTest, DoubleQuantizationKeepsHalfAByteAndAByteABlock) {
  const int64_t before = Live();
  const auto matrix = Matrix(kNf4);
  // nibbles, code, offset, nested scales and code, scales of 64 in a byte, the process's map.
  EXPECT_EQ(Live() - before, 8388608 + 512 + 512 + 4096 + 1024 + 262144 + 1024);
  dynamic_map_ = Tensor();
  const int64_t with_map = Live();
  const auto second = Quantize(Empty(runtime_, {64, 64}, DType::kBFloat16), kNf4, dynamic_map_);
  EXPECT_GT(Live(), with_map);
}

TEST_F(QuantizationTest, ForwardKeepsNothingOfItsInput) {
  const auto matrix = Matrix(kNf4);
  Tensor x = Empty(runtime_, {2048, 4096}, DType::kBFloat16);
  x.impl()->leaf_requires_grad = true;
  const Tensor warm = matrix->Multiply(x, Tensor());  // with cuBLAS's workspace
  const int64_t before = Live();
  const Tensor y = matrix->Multiply(x, Tensor());
  EXPECT_EQ(Live() - before, y.bytes().count());
  EXPECT_TRUE(y.requires_grad());
}

TEST_F(QuantizationTest, BackwardGivesTheInputItsGradient) {
  for (const Quantization& how : {kNf4, Quantization{.kind = Quantization::Kind::kInt8}}) {
    const auto matrix = Matrix(how);
    Tensor x = Empty(runtime_, {2, 1024, 4096}, DType::kBFloat16);
    x.impl()->leaf_requires_grad = true;
    {
      const Tensor y = matrix->Multiply(x, Tensor());
      const Tensor gradient = EmptyLike(y);
      Backward(runtime_, y, gradient);
    }
    ASSERT_TRUE(x.grad().defined());
    EXPECT_EQ(x.grad().shape(), x.shape());
  }
}

TEST_F(QuantizationTest, CastsABiasForGoodAtItsFirstUse) {
  const auto matrix = Matrix(kNf4);
  const Tensor bias = Empty(runtime_, {4096}, DType::kFloat32);
  const Tensor x = Empty(runtime_, {1, 4096}, DType::kBFloat16);
  { const Tensor y = matrix->Multiply(x, bias); }
  EXPECT_EQ(bias.dtype(), DType::kBFloat16);
  EXPECT_EQ(bias.impl()->storage->bytes(), Bytes(8192));
}

}  // namespace
}  // namespace headroom::predict
