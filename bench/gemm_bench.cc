// SPDX-License-Identifier: Apache-2.0
//
// How fast the engine multiplies matrices: gemm_bench prints, for the products of a small encoder's
// layer and of BERT's, the best of eight runs in 10^9 operations a second, by instruction set.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <vector>

#include "engine/cpu/gemm.h"
#include "engine/cpu/vector_kernels.h"

namespace headroom::engine::cpu {
namespace {

struct Product {
  int64_t m, n, k;
};

constexpr Product kProducts[] = {{512, 1536, 384}, {2048, 768, 3072}, {2048, 3072, 768}};
constexpr int kRuns = 8;

template <typename Function>
double Seconds(const Function& function) {
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  return best;
}

// Small integers, which every type holds exactly.
std::vector<float> Values(int64_t count, DType dtype) {
  std::mt19937 random(1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 16);
  if (dtype == DType::kFloat32) return values;
  std::vector<float> stored(values.size());
  Kernels().store(values.data(), count, dtype, reinterpret_cast<std::byte*>(stored.data()));
  return stored;
}

void Measure(const Product& size, DType dtype) {
  std::vector<float> x = Values(size.m * size.k, dtype);
  std::vector<float> weight = Values(size.k * size.n, dtype);
  std::vector<float> y(static_cast<size_t>(size.m * size.n));
  const auto data = [](std::vector<float>& values) {
    return reinterpret_cast<std::byte*>(values.data());
  };
  const Matrix left{data(x), dtype, size.k, 1};
  const Matrix left_turned{data(x), dtype, 1, size.m};
  const Matrix right{data(weight), dtype, size.n, 1};
  const Matrix right_turned{data(weight), dtype, 1, size.k};
  const Matrix result{data(y), dtype, size.n, 1};
  const double operations = 2e-9 * static_cast<double>(size.m * size.n * size.k);
  const auto speed = [&](const Matrix& a, const Matrix& b) {
    return operations / Seconds([&] { Gemm(size.m, size.n, size.k, a, b, result); });
  };
  std::printf("  %5lld x %5lld x %5lld %-9.*s %7.1f %7.1f %7.1f\n", static_cast<long long>(size.m),
              static_cast<long long>(size.n), static_cast<long long>(size.k),
              static_cast<int>(Name(dtype).size()), Name(dtype).data(), speed(left, right_turned),
              speed(left, right), speed(left_turned, right));
}

void MeasureAll() {
  constexpr const char* kNames[] = {"baseline", "AVX2", "AVX-512"};
  std::printf("      m       n       k           x W^T     x W   x^T y   GFLOP/s\n");
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    std::printf("%s\n", kNames[static_cast<size_t>(level)]);
    for (const Product& product : kProducts) {
      Measure(product, DType::kFloat32);
      Measure(product, DType::kBFloat16);
    }
  }
}

}  // namespace
}  // namespace headroom::engine::cpu

int main() {
  headroom::engine::cpu::MeasureAll();
  return 0;
}
