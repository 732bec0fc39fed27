// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::ActivationKind;
using graph::OpKind;

constexpr ActivationKind kActivations[] = {ActivationKind::kGelu, ActivationKind::kGeluTanh,
                                           ActivationKind::kRelu, ActivationKind::kSilu,
                                           ActivationKind::kTanh};

double Activate(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kGelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationKind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kTanh:
      return std::tanh(x);
  }
  return 0;
}

// The activations are good to a few units in the last place of values around 1.
constexpr Closeness kFunction{.terms = 16, .magnitude = 8};

const Shape kShapes[] = {{1, 1}, {3, 7}, {7, 65}, {2, 1030}, {300, 33}};

TEST(Activation, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    for (const ActivationKind kind : kActivations) {
      for (const Shape& shape : kShapes) {
        TestTensor x = TestTensor::Random(shape, dtype, random, 2);
        TestTensor y = TestTensor::Zeros(shape, dtype);
        OpRun forward{.kind = OpKind::kActivation,
                      .attributes = {.activation = kind},
                      .inputs = {&x},
                      .outputs = {&y}};
        forward.Run();
        const auto reference = [&](Doubles v) {
          for (double& value : v) value = Activate(kind, value);
          return v;
        };
        ExpectClose(y, reference(x.Values()), kFunction);
        TestTensor dy = TestTensor::Random(shape, dtype, random);
        TestTensor dx = TestTensor::Random(shape, dtype, random);
        const Doubles before = dx.Values();
        OpRun backward{.kind = OpKind::kActivationBackward,
                       .attributes = {.activation = kind, .accumulate = true},
                       .inputs = {&dy, &x},
                       .outputs = {&dx}};
        backward.Run();
        ExpectSlopes(dx, NumericGradient(reference, x.Values(), dy.Values(), random, 6), kFunction,
                     before);
      }
    }
  }
}

TEST(Activation, SumsTheRowsOfItsGradientForABias) {
  std::mt19937 random(5);
  for (const DType dtype : kStorageTypes) {
    TestTensor x = TestTensor::Random(Shape{300, 33}, dtype, random);
    TestTensor dy = TestTensor::Random(x.shape, dtype, random);
    TestTensor dx = TestTensor::Zeros(x.shape, dtype);
    TestTensor dbias = TestTensor::Random(Shape{33}, dtype, random);
    Doubles sums = dbias.Values();
    OpRun backward{.kind = OpKind::kActivationBackward,
                   .inputs = {&dy, &x},
                   .outputs = {&dx, &dbias},
                   .step = {.micro_step = 1}};
    backward.Run();
    const Doubles values = dx.Values();
    for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += values[i];
    ExpectClose(dbias, sums, {.terms = 300, .magnitude = 300});
  }
}

TEST(Glu, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(2);
  for (const DType dtype : kStorageTypes) {
    for (const ActivationKind kind : {ActivationKind::kSilu, ActivationKind::kGeluTanh}) {
      for (const Shape& half : kShapes) {
        const Shape shape{half[0], 2 * half[1]};
        TestTensor x = TestTensor::Random(shape, dtype, random);
        TestTensor y = TestTensor::Zeros(half, dtype);
        OpRun forward{.kind = OpKind::kGlu,
                      .attributes = {.activation = kind},
                      .inputs = {&x},
                      .outputs = {&y}};
        forward.Run();
        const auto reference = [&](const Doubles& v) {
          Doubles out;
          for (int64_t row = 0; row < half[0]; ++row) {
            for (int64_t i = 0; i < half[1]; ++i) {
              const auto gate = static_cast<size_t>(row * 2 * half[1] + i);
              out.push_back(Activate(kind, v[gate]) * v[gate + static_cast<size_t>(half[1])]);
            }
          }
          return out;
        };
        ExpectClose(y, reference(x.Values()), kFunction);
        TestTensor dy = TestTensor::Random(half, dtype, random);
        TestTensor dx = TestTensor::Random(shape, dtype, random);
        OpRun backward{.kind = OpKind::kGluBackward,
                       .attributes = {.activation = kind},
                       .inputs = {&dy, &x},
                       .outputs = {&dx}};
        backward.Run();
        ExpectSlopes(dx, NumericGradient(reference, x.Values(), dy.Values(), random, 6),
                     {.terms = 32, .magnitude = 8});
      }
    }
  }
}

TEST(Add, AddsInPlaceToo) {
  std::mt19937 random(3);
  for (const DType dtype : kStorageTypes) {
    TestTensor a = TestTensor::Random(Shape{9, 130}, dtype, random);
    TestTensor b = TestTensor::Random(Shape{9, 130}, dtype, random).Spread(140);
    Doubles want = a.Values();
    const Doubles other = b.Values();
    for (size_t i = 0; i < want.size(); ++i) want[i] += other[i];
    TestTensor y = TestTensor::Zeros(Shape{9, 130}, dtype);
    OpRun add{.kind = OpKind::kAdd, .inputs = {&a, &b}, .outputs = {&y}};
    add.Run();
    ExpectClose(y, want);
    OpRun in_place{.kind = OpKind::kAdd, .inputs = {&a, &b}, .outputs = {&a}};

    in_place.Run();
    EXPECT_EQ(a.bytes, y.bytes);
  }
}

TEST(Rope, TurnsPairsOfHalvesAndBack) {
  std::mt19937 random(4);
  constexpr int64_t kSequence = 5;
  constexpr int64_t kPairs = 9;
  for (const DType dtype : kStorageTypes) {
    for (const int head_dim : {18, 24}) {  // 24: the last six dimensions stay
      Doubles cosines;
      Doubles sines;
      for (int64_t i = 0; i < kSequence * kPairs; ++i) {
        cosines.push_back(std::cos(static_cast<double>(i)));
        sines.push_back(std::sin(static_cast<double>(i)));
      }
      TestTensor cosine = TestTensor::Of(Shape{kSequence, kPairs}, DType::kFloat32, cosines);
      TestTensor sine = TestTensor::Of(Shape{kSequence, kPairs}, DType::kFloat32, sines);
      TestTensor x = TestTensor::Random(Shape{2 * kSequence, 3 * head_dim}, dtype, random);
      const Doubles before = x.Values();
      Doubles want = before;
      for (size_t row = 0; row < 2 * kSequence; ++row) {
        for (size_t head = 0; head < 3; ++head) {
          for (size_t pair = 0; pair < kPairs; ++pair) {
            const size_t first = (row * 3 + head) * static_cast<size_t>(head_dim) + pair;
            const size_t second = first + kPairs;
            const size_t angle = row % kSequence * kPairs + pair;
            want[first] = before[first] * cosines[angle] - before[second] * sines[angle];
            want[second] = before[second] * cosines[angle] + before[first] * sines[angle];
          }
        }
      }
      OpRun rope{.kind = OpKind::kRope,
                 .attributes = {.heads = 3, .head_dim = head_dim},
                 .inputs = {&x, &cosine, &sine},
                 .outputs = {&x},
                 .batch = 2,
                 .sequence = kSequence};
      rope.Run();
      ExpectClose(x, want, {.terms = 4});
      rope.kind = OpKind::kRopeBackward;  // the transposed rotation, which is the inverse one
      rope.Run();
      ExpectClose(x, before, {.terms = 8, .stored = 2});
    }
  }
}

TEST(SelectRows, TakesTheFirstAndTheLastThatIsNotPadding) {
  std::mt19937 random(5);
  constexpr int64_t kColumns = 37;
  TestTensor lengths = TestTensor::Indices({1, 4, 3}, DType::kInt32);
  for (const DType dtype : kStorageTypes) {
    TestTensor x = TestTensor::Random(Shape{12, kColumns}, dtype, random);
    const Doubles values = x.Values();
    for (const int row : {0, 1, -1}) {
      const std::vector<int64_t> rows =
          row < 0 ? std::vector<int64_t>{0, 7, 10} : std::vector<int64_t>{row, 4 + row, 8 + row};
      Doubles want;
      Doubles want_dx(values.size());
      TestTensor dy = TestTensor::Random(Shape{3, kColumns}, dtype, random);
      for (size_t b = 0; b < 3; ++b) {
        for (size_t i = 0; i < kColumns; ++i) {
          const size_t at = static_cast<size_t>(rows[b]) * kColumns + i;
          want.push_back(values[at]);
          want_dx[at] = dy.Values()[b * kColumns + i];
        }
      }
      TestTensor y = TestTensor::Zeros(Shape{3, kColumns}, dtype);
      TestTensor dx = TestTensor::Random(Shape{12, kColumns}, dtype, random);
      OpRun select{.kind = OpKind::kSelectRows,
                   .attributes = {.row = row},
                   .inputs = {&x, &lengths},
                   .outputs = {&y},
                   .batch = 3,
                   .sequence = 4};
      select.Run();
      EXPECT_EQ(y.Values(), want);
      select.kind = OpKind::kSelectRowsBackward;
      select.inputs = {&dy, &lengths};
      select.outputs = {&dx};
      select.Run();
      EXPECT_EQ(dx.Values(), want_dx);
    }
  }
}

}  // namespace
}  // namespace headroom::engine::cpu
