// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/op_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/thread_pool.h"
#include "engine/half.h"

namespace headroom::engine::cpu {
namespace {

void Put(std::byte* to, DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  const uint16_t half = dtype == DType::kFloat16 ? Float16Bits(narrow) : BFloat16Bits(narrow);
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &narrow, sizeof narrow);
  } else {
    std::memcpy(to, &half, sizeof half);
  }
}

double Get(const std::byte* from, DType dtype) {
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return static_cast<double>(dtype == DType::kFloat16 ? FromFloat16(half) : FromBFloat16(half));
}

double Epsilon(DType dtype) {
  if (dtype == DType::kFloat16) return 0x1p-11;
  return dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-24;
}

double Largest(const Doubles& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::vector<TensorView> Views(const std::vector<TestTensor*>& tensors) {
  std::vector<TensorView> views;
  for (TestTensor* tensor : tensors) {
    views.push_back(tensor == nullptr ? TensorView{} : tensor->View());
  }
  return views;
}

}  // namespace

TestTensor TestTensor::Zeros(Shape shape, DType dtype) {
  TestTensor tensor{.dtype = dtype, .shape = shape};
  tensor.bytes.resize(static_cast<size_t>(shape.NumElements() * ElementSize(dtype)));
  return tensor;
}

TestTensor TestTensor::Of(Shape shape, DType dtype, const Doubles& values) {
  TestTensor tensor = Zeros(shape, dtype);
  const auto size = static_cast<size_t>(ElementSize(dtype));
  for (size_t i = 0; i < values.size(); ++i) Put(tensor.bytes.data() + i * size, dtype, values[i]);
  return tensor;
}

TestTensor TestTensor::Random(Shape shape, DType dtype, std::mt19937& random, double deviation) {
  std::normal_distribution<double> normal(0, deviation);
  Doubles values(static_cast<size_t>(shape.NumElements()));
  for (double& value : values) value = normal(random);
  return Of(shape, dtype, values);
}

TestTensor TestTensor::Indices(const std::vector<int64_t>& values, DType dtype) {
  TestTensor tensor = Zeros(Shape{static_cast<int64_t>(values.size())}, dtype);
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kInt64) {
      std::memcpy(tensor.bytes.data() + i * 8, &values[i], 8);
    } else {
      const auto value = static_cast<int32_t>(values[i]);
      std::memcpy(tensor.bytes.data() + i * 4, &value, 4);
    }
  }
  return tensor;
}

TestTensor TestTensor::Spread(int64_t stride) const {
  TestTensor tensor{.dtype = dtype, .shape = shape, .row_stride = stride};
  const int64_t size = ElementSize(dtype);
  tensor.bytes.resize(static_cast<size_t>(rows() * stride * size), std::byte{0x5a});
  for (int64_t row = 0; row < rows(); ++row) {
    std::memcpy(tensor.bytes.data() + row * stride * size, bytes.data() + row * shape[-1] * size,
                static_cast<size_t>(shape[-1] * size));
  }
  return tensor;
}

TensorView TestTensor::View() { return {bytes.data(), dtype, shape, row_stride}; }

Doubles TestTensor::Values() const {
  Doubles values;
  const int64_t stride = row_stride == 0 ? shape[-1] : row_stride;
  for (int64_t row = 0; row < rows(); ++row) {
    for (int64_t column = 0; column < shape[-1]; ++column) {
      values.push_back(Get(bytes.data() + (row * stride + column) * ElementSize(dtype), dtype));
    }
  }
  return values;
}

void OpRun::RunOnce() {
  const auto in = Views(inputs);
  const auto out = Views(outputs);
  const auto temporary = Views(scratch);
  graph::OpAttributes all = attributes;
  all.batch = batch;
  all.sequence = sequence;
  all.key_sequence = key_sequence;
  RunCpuOp({.kind = kind,
            .attributes = all,
            .inputs = in,
            .outputs = out,
            .scratch = temporary,
            .step = step});
}

void OpRun::Run() {
  std::vector<TestTensor*> tensors = outputs;
  tensors.insert(tensors.end(), inputs.begin(), inputs.end());
  std::vector<std::vector<std::byte>> before;
  for (const TestTensor* tensor : tensors) {
    before.push_back(tensor == nullptr ? std::vector<std::byte>{} : tensor->bytes);
  }
  std::vector<std::vector<std::byte>> first;
  for (const int threads : {1, 2, 3}) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] != nullptr) tensors[i]->bytes = before[i];
    }
    ThreadPool::Get().SetThreads(threads);
    RunOnce();
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i] == nullptr) continue;
      if (threads == 1) {
        first.resize(tensors.size());
        first[i] = tensors[i]->bytes;
      }
      EXPECT_EQ(tensors[i]->bytes, first[i]) << "operand " << i << ", " << threads << " threads";
    }
  }
}

double Tolerance(DType dtype, double want, double magnitude, const Closeness& closeness) {
  const double subnormal = dtype == DType::kFloat16 ? 0x1p-25 : 0;
  const double sums = closeness.terms * 0x1p-24 + closeness.stored * Epsilon(dtype);
  return Epsilon(dtype) * std::fabs(want) + sums * magnitude + subnormal;
}

void ExpectClose(const TestTensor& got, const Doubles& want, const Closeness& closeness) {
  const Doubles values = got.Values();
  ASSERT_EQ(values.size(), want.size());
  const double magnitude = closeness.magnitude > 0 ? closeness.magnitude : Largest(want);
  for (size_t i = 0; i < want.size(); ++i) {
    if (values[i] == want[i]) continue;  // infinities too
    ASSERT_NEAR(values[i], want[i], Tolerance(got.dtype, want[i], magnitude, closeness))
        << "element " << i << " of " << got.shape.ToString() << " in " << Name(got.dtype);
  }
}

Slopes NumericGradient(const std::function<Doubles(const Doubles&)>& forward, const Doubles& x,
                       const Doubles& dy, std::mt19937& random, size_t samples) {
  Slopes slopes;
  std::vector<size_t> all(x.size());
  std::iota(all.begin(), all.end(), size_t{0});
  std::sample(all.begin(), all.end(), std::back_inserter(slopes.at), samples, random);
  const auto objective = [&](const Doubles& at) {
    const Doubles y = forward(at);
    return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
  };
  // The error of a central difference is h^2 / 6 times the third derivative, and 1e-16 / h of the
  // value: both below 1e-9 here.
  constexpr double kStep = 2e-5;
  Doubles moved = x;
  for (const size_t i : slopes.at) {
    moved[i] = x[i] + kStep;
    const double above = objective(moved);
    moved[i] = x[i] - kStep;
    const double below = objective(moved);
    moved[i] = x[i];
    slopes.values.push_back((above - below) / (2 * kStep));
  }
  return slopes;
}

void ExpectSlopes(const TestTensor& got, const Slopes& want, const Closeness& closeness,
                  const Doubles& before) {
  const Doubles values = got.Values();
  const double magnitude =
      closeness.magnitude > 0 ? closeness.magnitude : std::max(Largest(want.values), 1e-3);
  constexpr double kDifferences = 1e-7;  // of the reference, of values around 100
  for (size_t i = 0; i < want.at.size(); ++i) {
    const double expected = want.values[i] + (before.empty() ? 0 : before[want.at[i]]);
    ASSERT_NEAR(values[want.at[i]], expected,
                Tolerance(got.dtype, expected, magnitude, closeness) +
                    kDifferences * std::max(1.0, magnitude))
        << "element " << want.at[i] << " of " << got.shape.ToString() << " in " << Name(got.dtype);
  }
}

}  // namespace headroom::engine::cpu
