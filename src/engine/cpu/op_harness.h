// SPDX-License-Identifier: Apache-2.0
//
// For the tests of ops: tensors that own their bytes, runs on one and on several threads that must
// agree to the bit, and gradients by central differences of a forward function in double.
//
//   OpRun run{.kind = OpKind::kActivation, .inputs = {&x}, .outputs = {&y}};
//   run.Run();
//   ExpectClose(y, reference(x.Values()), {.terms = 4});
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "engine/cpu/cpu_ops.h"
#include "engine/op_call.h"

namespace headroom::engine::cpu {

using Doubles = std::vector<double>;

struct TestTensor {
  DType dtype = DType::kFloat32;
  Shape shape = {};
  int64_t row_stride = 0;
  std::vector<std::byte> bytes = {};

  static TestTensor Zeros(Shape shape, DType dtype = DType::kFloat32);
  static TestTensor Of(Shape shape, DType dtype, const Doubles& values);
  // Normal, with this deviation.
  static TestTensor Random(Shape shape, DType dtype, std::mt19937& random, double deviation = 1);
  static TestTensor Indices(const std::vector<int64_t>& values, DType dtype = DType::kInt64);
  // The same values with room between the rows.
  TestTensor Spread(int64_t stride) const;

  TensorView View();
  // What the elements stand for, rows joined.
  Doubles Values() const;
  int64_t rows() const { return shape.NumElements() / shape[-1]; }
};

struct OpRun {
  graph::OpKind kind{};
  graph::OpAttributes attributes = {};
  std::vector<TestTensor*> inputs = {};  // null: absent
  std::vector<TestTensor*> outputs = {};
  std::vector<TestTensor*> scratch = {};
  StepScalars step = {};
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t key_sequence = 0;

  // On one, two and three threads, from the same bytes; expects the same bytes.
  void Run();

 private:
  void RunOnce();
};

struct Closeness {
  double terms = 1;      // roundings that add up, of float32 (derivation: gamma_n = n * 2^-24)
  double magnitude = 0;  // of what is summed; 0: the largest reference value
  // Roundings to the storage type before the last, of operands that were stored on the way.
  double stored = 0;
};

// |got - want| <= eps(dtype) * |want| + (terms * 2^-24 + stored * eps(dtype)) * magnitude
double Tolerance(DType dtype, double want, double magnitude, const Closeness& closeness);

void ExpectClose(const TestTensor& got, const Doubles& want, const Closeness& closeness = {});

// d(dy . forward(x)) / dx at some of the coordinates of x, by central differences.
struct Slopes {
  std::vector<size_t> at;
  Doubles values;
};
Slopes NumericGradient(const std::function<Doubles(const Doubles&)>& forward, const Doubles& x,
                       const Doubles& dy, std::mt19937& random, size_t samples = 60);

// `before` is what an accumulating output held.
void ExpectSlopes(const TestTensor& got, const Slopes& want, const Closeness& closeness = {},
                  const Doubles& before = {});

inline const std::vector<DType> kStorageTypes = {DType::kFloat32, DType::kBFloat16,
                                                 DType::kFloat16};

}  // namespace headroom::engine::cpu
