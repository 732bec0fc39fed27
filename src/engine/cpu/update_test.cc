// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/cpu/block_quantiser.h"
#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;
using graph::OptimizerKind;

constexpr double kRate = 1e-3;

// One parameter in double, as torch.optim steps it.
struct Reference {
  Doubles weight, m, v;

  void Adam(const Doubles& gradient, int64_t step, double decay, bool decoupled, double scale = 1) {
    const auto beta1 = static_cast<double>(0.9F);
    const auto beta2 = static_cast<double>(0.999F);
    const double correction1 = 1 - std::pow(beta1, static_cast<double>(step));
    const double correction2 = 1 - std::pow(beta2, static_cast<double>(step));
    for (size_t i = 0; i < weight.size(); ++i) {
      double g = gradient[i] * scale;
      if (decoupled) {
        weight[i] *= 1 - kRate * decay;
      } else {
        g += decay * weight[i];
      }
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double divisor = std::sqrt(v[i]) / std::sqrt(correction2) + 1e-8;
      weight[i] -= kRate / correction1 * m[i] / divisor;
    }
  }
};

StepScalars At(int64_t step) { return {.step = step, .learning_rate = static_cast<float>(kRate)}; }

TestTensor NormOf(const std::vector<TestTensor*>& gradients) {
  TestTensor norm = TestTensor::Zeros(Shape{2});
  OpRun run{.kind = OpKind::kGradNorm, .inputs = gradients, .outputs = {&norm}};
  run.Run();
  return norm;
}

TEST(GradNorm, SumsSquaresOfAllGradients) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    TestTensor a = TestTensor::Random(Shape{3, 7}, dtype, random);
    TestTensor b = TestTensor::Random(Shape{130, 700}, dtype, random);
    double want = 0;
    for (const TestTensor* tensor : {&a, &b}) {
      for (const double value : tensor->Values()) want += value * value;
    }
    ExpectClose(NormOf({&a, &b}), {want, 0}, {.terms = 512});
  }
}

TEST(GradNorm, CountsWhatIsNotFinite) {
  TestTensor a = TestTensor::Of(Shape{5}, DType::kFloat32, {1, 2, HUGE_VAL, NAN, -HUGE_VAL});
  EXPECT_EQ(NormOf({&a}).Values(), (Doubles{5, 3}));
}

TEST(Update, AdamAndAdamWEqualTheReferenceOverTenSteps) {
  std::mt19937 random(2);
  for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kAdam}) {
    const Shape shape{70, 1000};  // two segments, and a rest of fewer than sixteen
    TestTensor weight = TestTensor::Random(shape, DType::kFloat32, random);
    TestTensor copy = TestTensor::Zeros(shape, DType::kBFloat16);
    TestTensor m = TestTensor::Zeros(shape);
    TestTensor v = TestTensor::Zeros(shape);
    const Doubles zeros(weight.Values().size());
    Reference reference{weight.Values(), zeros, zeros};
    for (int64_t step = 1; step <= 10; ++step) {
      TestTensor gradient = TestTensor::Random(shape, DType::kFloat32, random);
      TestTensor norm = NormOf({&gradient});
      OpRun run{.kind = OpKind::kUpdate,
                .attributes = {.optimizer = kind, .weight_decay = 0.1F},
                .inputs = {&norm, &gradient},
                .outputs = {&weight, &m, &v, &copy, nullptr, nullptr},
                .step = At(step)};
      run.Run();
      reference.Adam(gradient.Values(), step, static_cast<double>(0.1F),
                     kind == OptimizerKind::kAdamW);
      ExpectClose(weight, reference.weight, {.terms = 32});
      ExpectClose(m, reference.m, {.terms = 32});
    }
    EXPECT_EQ(copy.bytes, TestTensor::Of(shape, DType::kBFloat16, weight.Values()).bytes);
  }
}

TEST(Update, UnscalesAndClipsByTheNormOfAllGradients) {
  std::mt19937 random(3);
  for (const DType dtype : kStorageTypes) {
    TestTensor a = TestTensor::Random(Shape{33}, dtype, random, 8);
    TestTensor b = TestTensor::Random(Shape{5}, dtype, random, 8);
    TestTensor norm = NormOf({&a, &b});
    TestTensor weight_a = TestTensor::Random(Shape{33}, DType::kFloat32, random);
    TestTensor weight_b = TestTensor::Random(Shape{5}, DType::kFloat32, random);
    const double length = std::sqrt(norm.Values()[0]) / 4;
    const double scale = std::min(1.0, 2 / (length + 1e-6)) / 4;
    Doubles want = weight_b.Values();
    for (size_t i = 0; i < want.size(); ++i) want[i] -= kRate * scale * b.Values()[i];
    StepScalars step = At(1);
    step.loss_scale = 4;
    step.max_grad_norm = 2;
    OpRun run{.kind = OpKind::kUpdate,
              .attributes = {.optimizer = OptimizerKind::kSgd},
              .inputs = {&norm, &a, &b},
              .outputs = {&weight_a, nullptr, nullptr, nullptr, nullptr, nullptr, &weight_b,
                          nullptr, nullptr, nullptr, nullptr, nullptr},
              .step = step};
    run.Run();
    ExpectClose(weight_b, want, {.terms = 8});
  }
}

TEST(Update, SgdKeepsMomentumAndDecaysThroughTheGradient) {
  std::mt19937 random(4);
  TestTensor weight = TestTensor::Random(Shape{37}, DType::kFloat32, random);
  TestTensor m = TestTensor::Zeros(Shape{37});
  Doubles want = weight.Values();
  Doubles momentum(37);
  for (int64_t step = 1; step <= 5; ++step) {
    TestTensor gradient = TestTensor::Random(Shape{37}, DType::kFloat32, random);
    TestTensor norm = NormOf({&gradient});
    OpRun run{
        .kind = OpKind::kUpdate,
        .attributes = {.optimizer = OptimizerKind::kSgd, .weight_decay = 0.5F, .momentum = 0.75F},
        .inputs = {&norm, &gradient},
        .outputs = {&weight, &m, nullptr, nullptr, nullptr, nullptr},
        .step = At(step)};
    run.Run();
    for (size_t i = 0; i < want.size(); ++i) {
      momentum[i] = 0.75 * momentum[i] + gradient.Values()[i] + 0.5 * want[i];
      want[i] -= kRate * momentum[i];
    }
    ExpectClose(weight, want, {.terms = 8});
  }
}

TEST(Update, ChangesNothingWhenAGradientIsNotFinite) {
  std::mt19937 random(5);
  TestTensor a = TestTensor::Random(Shape{40}, DType::kFloat16, random);
  TestTensor b = TestTensor::Of(Shape{1}, DType::kFloat16, {HUGE_VAL});
  TestTensor norm = NormOf({&a, &b});
  TestTensor weight = TestTensor::Random(Shape{40}, DType::kFloat32, random);
  TestTensor m = TestTensor::Random(Shape{40}, DType::kFloat32, random);
  TestTensor v = TestTensor::Of(Shape{40}, DType::kFloat32, Doubles(40, 1.0));
  TestTensor other = TestTensor::Zeros(Shape{1});
  const auto before = weight.bytes;
  const auto before_m = m.bytes;
  OpRun run{.kind = OpKind::kUpdate,
            .inputs = {&norm, &a, &b},
            .outputs = {&weight, &m, &v, nullptr, nullptr, nullptr, &other, &other, &other, nullptr,
                        nullptr, nullptr},
            .step = At(1)};
  run.Run();
  EXPECT_EQ(weight.bytes, before);
  EXPECT_EQ(m.bytes, before_m);
}

Doubles Dequantised(const BlockQuantiser& quantiser, const TestTensor& codes,
                    const TestTensor& scales) {
  const Doubles scale = scales.Values();
  Doubles values;
  for (size_t i = 0; i < codes.bytes.size(); ++i) {
    const auto code = static_cast<uint8_t>(codes.bytes[i]);
    values.push_back(static_cast<double>(quantiser.Value(code)) * scale[i / kQuantisedBlock]);
  }
  return values;
}

int64_t CountFar(const Doubles& got, const Doubles& want) {
  int64_t far = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::fabs(got[i] - want[i]) > 3e-3 + 1e-3 * std::fabs(want[i])) ++far;
  }
  return far;
}

// The bounds of bitsandbytes' own test (test_optimizer8bit in tests/test_optim.py): over 50 steps
// of gradients around 0.01, fewer than 20 elements of a state are outside 3e-3 + 1e-3 |x| of
// float32's, and weights are within these means of them. As there, each step of the reference
// starts from what the step before has stored.
void CheckEightBit(int64_t rows, int64_t columns, DType dtype, double absolute, double relative) {
  std::mt19937 random(6);
  const Shape shape{rows, columns};
  const int64_t n = rows * columns;
  const int64_t blocks = (n + kQuantisedBlock - 1) / kQuantisedBlock;
  TestTensor weight = TestTensor::Random(shape, dtype, random, 0.1);
  TestTensor m = TestTensor::Zeros(shape, DType::kUInt8);
  TestTensor v = TestTensor::Zeros(shape, DType::kUInt8);
  TestTensor m_scales = TestTensor::Zeros(Shape{blocks});
  TestTensor v_scales = TestTensor::Zeros(Shape{blocks});
  const Doubles zeros(static_cast<size_t>(n));
  Reference reference{weight.Values(), zeros, zeros};
  for (int64_t step = 1; step <= 50; ++step) {
    TestTensor gradient = TestTensor::Random(shape, dtype, random, 0.01);
    TestTensor norm = NormOf({&gradient});
    OpRun run{.kind = OpKind::kUpdate,
              .attributes = {.weight_decay = 0.01F},
              .inputs = {&norm, &gradient},
              .outputs = {&weight, &m, &v, nullptr, &m_scales, &v_scales},
              .step = At(step)};
    run.Run();
    reference.Adam(gradient.Values(), step, static_cast<double>(0.01F), true);
    const Doubles weights = weight.Values();
    const Doubles first = Dequantised(BlockQuantiser::Signed(), m, m_scales);
    const Doubles second = Dequantised(BlockQuantiser::Unsigned(), v, v_scales);
    double difference = 0;
    double ratio = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double distance = std::fabs(weights[i] - reference.weight[i]);
      difference += distance / static_cast<double>(n);
      ratio += distance / (std::fabs(reference.weight[i]) + 1e-9) / static_cast<double>(n);
    }
    ASSERT_LT(difference, absolute) << "step " << step;
    ASSERT_LT(ratio, relative) << "step " << step;
    ASSERT_LT(CountFar(first, reference.m), 20) << "step " << step;
    ASSERT_LT(CountFar(second, reference.v), 20) << "step " << step;
    reference = {weights, first, second};
  }
}

TEST(Update, EightBitAdamWStaysWithinTheBoundsOfBitsandbytes) {
  CheckEightBit(128, 33, DType::kFloat32, 6e-5, 6e-4);
  CheckEightBit(64, 97, DType::kBFloat16, 1.7e-4, 1.6e-3);
}

// The mean of many weights that started at 1 and owe 100 updates of an eighth of a last place.
double MeanAfterSmallUpdates(OptimizerKind kind, DType state, bool stochastic, uint64_t seed) {
  constexpr int64_t kWeights = 5000;
  constexpr int64_t kBlocks = (kWeights + kQuantisedBlock - 1) / kQuantisedBlock;
  TestTensor weight = TestTensor::Of(Shape{kWeights}, DType::kBFloat16, Doubles(kWeights, 1.0));
  TestTensor m = TestTensor::Zeros(Shape{kWeights}, state);
  TestTensor v = TestTensor::Zeros(Shape{kWeights}, state);
  TestTensor m_scales = TestTensor::Zeros(Shape{kBlocks});
  TestTensor v_scales = TestTensor::Zeros(Shape{kBlocks});
  TestTensor gradient = TestTensor::Of(Shape{kWeights}, DType::kBFloat16, Doubles(kWeights, 1.0));
  TestTensor norm = NormOf({&gradient});
  const bool sgd = kind == OptimizerKind::kSgd;
  const bool quantised = state == DType::kUInt8;
  for (int64_t step = 1; step <= 100; ++step) {
    OpRun run{
        .kind = OpKind::kUpdate,
        .attributes = {.stream = 1U << 31, .optimizer = kind, .stochastic_rounding = stochastic},
        .inputs = {&norm, &gradient},
        .outputs = {&weight, sgd ? nullptr : &m, sgd ? nullptr : &v, nullptr,
                    quantised ? &m_scales : nullptr, quantised ? &v_scales : nullptr},
        .step = {.seed = seed, .step = step, .learning_rate = -0x1p-10F}};
    run.Run();
  }
  double sum = 0;
  for (const double value : weight.Values()) sum += value;
  return sum / kWeights;
}

// A step of 2^-10 at weights of 1 to 2, whose last place is 2^-7.
TEST(Update, StochasticRoundingArrivesWhereRoundingToNearestStandsStill) {
  for (const auto& [kind, state] : {std::pair{OptimizerKind::kSgd, DType::kFloat32},
                                    std::pair{OptimizerKind::kAdamW, DType::kFloat32},
                                    std::pair{OptimizerKind::kAdamW, DType::kUInt8}}) {
    EXPECT_EQ(MeanAfterSmallUpdates(kind, state, false, 1), 1.0);
    // Each step's rounding deviates by at most half a place, which is 2^-8.
    const double bound = 5 * std::sqrt(100.0 / 5000) * 0x1p-8 + 1e-3;
    const double mean = MeanAfterSmallUpdates(kind, state, true, 1);
    EXPECT_NEAR(mean, 1 + 100 * 0x1p-10, bound);
    EXPECT_NE(mean, MeanAfterSmallUpdates(kind, state, true, 2));
  }
}

TEST(Update, MastersAreNotRoundedByChance) {
  std::mt19937 random(7);
  const Shape shape{100};
  TestTensor gradient = TestTensor::Random(shape, DType::kBFloat16, random);
  TestTensor norm = NormOf({&gradient});
  TestTensor weight = TestTensor::Random(shape, DType::kFloat32, random);
  TestTensor copy = TestTensor::Zeros(shape, DType::kBFloat16);
  OpRun run{.kind = OpKind::kUpdate,
            .attributes = {.optimizer = OptimizerKind::kSgd, .stochastic_rounding = true},
            .inputs = {&norm, &gradient},
            .outputs = {&weight, nullptr, nullptr, &copy, nullptr, nullptr},
            .step = At(1)};
  run.Run();
  EXPECT_EQ(copy.bytes, TestTensor::Of(shape, DType::kBFloat16, weight.Values()).bytes);
}

}  // namespace
}  // namespace headroom::engine::cpu
