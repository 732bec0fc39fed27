// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/op_harness.h"
#include "engine/cpu/vector_kernels.h"

namespace headroom::engine::cpu {
namespace {

struct Sizes {
  int64_t m, n, k;
};

// What the product is, and the sum of the magnitudes of its terms.
struct Expected {
  Doubles values;
  Doubles magnitudes;
};

Expected Multiply(const Sizes& sizes, const Doubles& a, const Doubles& b) {
  Expected expected;
  for (int64_t i = 0; i < sizes.m; ++i) {
    for (int64_t j = 0; j < sizes.n; ++j) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t p = 0; p < sizes.k; ++p) {
        const double term =
            a[static_cast<size_t>(i * sizes.k + p)] * b[static_cast<size_t>(p * sizes.n + j)];
        sum += term;
        magnitude += std::fabs(term);
      }
      expected.values.push_back(sum);
      expected.magnitudes.push_back(magnitude);
    }
  }
  return expected;
}

// [rows, columns] of these values, or its transpose in memory.
TestTensor Laid(int64_t rows, int64_t columns, DType dtype, const Doubles& values, bool turned) {
  if (!turned) return TestTensor::Of(Shape{rows, columns}, dtype, values);
  Doubles other(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      other[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * columns + c)];
    }
  }
  return TestTensor::Of(Shape{columns, rows}, dtype, other);
}

Matrix As(TestTensor& tensor, bool turned) {
  const Matrix matrix = Matrix::Of(tensor.View());
  return turned ? matrix.Transposed() : matrix;
}

void Check(const Sizes& sizes, DType dtype, DType out, bool turn_a, bool turn_b, bool add,
           std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << sizes.m << "x" << sizes.n << "x" << sizes.k << " "
                                  << Name(dtype) << " to " << Name(out) << " " << turn_a << turn_b
                                  << add);
  const Doubles a = TestTensor::Random(Shape{sizes.m, sizes.k}, dtype, random).Values();
  const Doubles b = TestTensor::Random(Shape{sizes.k, sizes.n}, dtype, random).Values();
  TestTensor left = Laid(sizes.m, sizes.k, dtype, a, turn_a);
  TestTensor right = Laid(sizes.k, sizes.n, dtype, b, turn_b);
  TestTensor bias = TestTensor::Random(Shape{sizes.n}, dtype, random);
  const int64_t stride = sizes.n + 3;
  TestTensor c = TestTensor::Random(Shape{sizes.m, sizes.n}, out, random).Spread(stride);
  const TestTensor before = c;
  const Doubles old = c.Values();
  const TensorView bias_view = bias.View();
  Gemm(sizes.m, sizes.n, sizes.k, As(left, turn_a), As(right, turn_b), Matrix::Of(c.View()),
       {.add = add, .bias = &bias_view});
  const Expected expected = Multiply(sizes, a, b);
  const Doubles values = c.Values();
  const Doubles biases = bias.Values();
  for (size_t i = 0; i < values.size(); ++i) {
    const double bias_term = biases[i % static_cast<size_t>(sizes.n)];
    const double old_term = add ? old[i] : 0;
    const double want = expected.values[i] + bias_term + old_term;
    const double magnitude = expected.magnitudes[i] + std::fabs(bias_term) + std::fabs(old_term);
    const Closeness closeness{.terms = static_cast<double>(sizes.k) + 2};
    ASSERT_NEAR(values[i], want, Tolerance(out, want, magnitude, closeness)) << i;
  }
  const auto row = static_cast<size_t>(stride * ElementSize(out));
  const auto used = static_cast<size_t>(sizes.n * ElementSize(out));
  for (size_t i = 0; i < c.bytes.size(); ++i) {
    if (i % row >= used) {
      ASSERT_EQ(c.bytes[i], before.bytes[i]) << "written between rows";
    }
  }
}

TEST(Gemm, EqualsTheSumOfProductsForEverySizeLayoutAndType) {
  std::mt19937 random(1);
  const int64_t sizes[] = {1, 3, 7, 14, 16, 31, 33, 65, 130};
  std::uniform_int_distribution<size_t> pick(0, std::size(sizes) - 1);
  std::uniform_int_distribution<int> coin(0, 1);
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (const DType dtype : kStorageTypes) {
      for (int i = 0; i < 40; ++i) {
        const Sizes some{sizes[pick(random)], sizes[pick(random)], sizes[pick(random)]};
        Check(some, dtype, coin(random) != 0 ? dtype : DType::kFloat32, coin(random) != 0,
              coin(random) != 0, coin(random) != 0, random);
      }
      Check({70, 40, 600}, dtype, dtype, true, false, true, random);
    }
    Check({530, 33, 17}, DType::kFloat32, DType::kBFloat16, false, true, true, random);
    Check({5, 1040, 300}, DType::kFloat32, DType::kFloat32, false, false, true, random);
  }
}

TEST(Gemm, HasTheBitsOfOneCallWhenTheSumIsCutAtTheDepthOfABlock) {
  if (!kExactProducts) GTEST_SKIP() << "OpenBLAS multiplies";
  std::mt19937 random(2);
  const Sizes sizes{45, 70, 3 * kGemmDepth};
  TestTensor a = TestTensor::Random(Shape{sizes.m, sizes.k}, DType::kBFloat16, random);
  TestTensor b = TestTensor::Random(Shape{sizes.k, sizes.n}, DType::kBFloat16, random);
  TestTensor whole = TestTensor::Zeros(Shape{sizes.m, sizes.n});
  TestTensor parts = whole;
  const Matrix left = Matrix::Of(a.View());
  const Matrix right = Matrix::Of(b.View());
  Gemm(sizes.m, sizes.n, sizes.k, left, right, Matrix::Of(whole.View()));
  Gemm(sizes.m, sizes.n, kGemmDepth, left, right, Matrix::Of(parts.View()));
  Matrix left_rest = left;
  Matrix right_rest = right;
  left_rest.data += kGemmDepth * ElementSize(a.dtype);
  right_rest.data += kGemmDepth * sizes.n * ElementSize(b.dtype);
  Gemm(sizes.m, sizes.n, 2 * kGemmDepth, left_rest, right_rest, Matrix::Of(parts.View()),
       {.add = true});
  EXPECT_EQ(whole.bytes, parts.bytes);
}

TEST(Gemm, RowsHaveTheSameBitsWhateverRowsAreComputedWithThem) {
  if (!kExactProducts) GTEST_SKIP() << "OpenBLAS multiplies";
  std::mt19937 random(3);
  const Sizes sizes{600, 50, 300};
  TestTensor a = TestTensor::Random(Shape{sizes.m, sizes.k}, DType::kFloat32, random);
  TestTensor b = TestTensor::Random(Shape{sizes.n, sizes.k}, DType::kFloat32, random);
  TestTensor whole = TestTensor::Zeros(Shape{sizes.m, sizes.n});
  TestTensor some = TestTensor::Zeros(Shape{int64_t{11}, sizes.n});
  const Matrix right = Matrix::Of(b.View()).Transposed();
  Gemm(sizes.m, sizes.n, sizes.k, Matrix::Of(a.View()), right, Matrix::Of(whole.View()));
  Matrix rows = Matrix::Of(a.View());
  rows.data += 203 * sizes.k * 4;
  Gemm(11, sizes.n, sizes.k, rows, right, Matrix::Of(some.View()));
  const auto start = whole.bytes.begin() + 203 * sizes.n * 4;
  EXPECT_TRUE(std::equal(some.bytes.begin(), some.bytes.end(), start));
}

}  // namespace
}  // namespace headroom::engine::cpu
