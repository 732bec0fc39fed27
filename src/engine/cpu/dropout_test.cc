// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/dropout.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/op_harness.h"
#include "engine/cpu/vector_kernels.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;
using Words = std::array<uint32_t, 4>;

// kat_vectors of Random123 1.14, the reference implementation of the paper.
TEST(Philox, HasTheKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, EveryVectorLevelHasTheMaskOfItsDefinition) {
  const DropoutMask mask{.key = 0x1234567890abcdef,
                         .micro_step = 3,
                         .step = 8,
                         .stream = 11,
                         .threshold = 0x3000,
                         .scale = 1.25F};
  // Starts inside a group of eight, and a carry into the counter's upper word.
  for (const VectorLevel level : VectorLevels()) {
    UseVectorLevel(level);
    for (const uint64_t first :
         {uint64_t{0}, uint64_t{3}, uint64_t{65}, (uint64_t{1} << 35) - 30}) {
      for (const int64_t n : {1, 7, 64, 131}) {
        std::vector<float> factors(static_cast<size_t>(n));
        Kernels().dropout(mask, first, n, factors.data());
        for (size_t i = 0; i < factors.size(); ++i) {
          ASSERT_EQ(factors[i], mask.Factor(first + i)) << first << " + " << i;
        }
      }
    }
  }
}

// Of n elements, n (1 - rate) are kept with deviation sqrt(n rate (1 - rate)).
TEST(Dropout, KeepsTheExpectation) {
  TestTensor x = TestTensor::Of(Shape{100, 1000}, DType::kFloat32, Doubles(100000, 1.0));
  for (const float rate : {0.1F, 0.5F, 0.9F}) {
    TestTensor y = TestTensor::Zeros(x.shape);
    OpRun run{.kind = OpKind::kDropout,
              .attributes = {.dropout = rate},
              .inputs = {&x},
              .outputs = {&y},
              .step = {.seed = 1}};
    run.Run();
    double sum = 0;
    for (const double value : y.Values()) sum += value;
    const double n = 100000;
    const auto p = static_cast<double>(rate);
    EXPECT_NEAR(sum, n, 5 * std::sqrt(n * p * (1 - p)) / (1 - p));
  }
}

TEST(Dropout, BackwardHasForwardsMaskInEveryType) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    TestTensor x = TestTensor::Of(Shape{7, 65}, dtype, Doubles(7 * 65, 1.0));
    TestTensor y = TestTensor::Zeros(x.shape, dtype);
    TestTensor dx = y;
    OpRun run{.kind = OpKind::kDropout,
              .attributes = {.dropout = 0.5F, .stream = 4},
              .inputs = {&x},
              .outputs = {&y},
              .step = {.seed = 9, .micro_step = 2}};
    run.Run();
    run.kind = OpKind::kDropoutBackward;
    run.outputs = {&dx};
    run.Run();
    EXPECT_EQ(y.bytes, dx.bytes);
  }
}

TEST(Dropout, MaskChangesWithSeedStepMicroStepAndStream) {
  TestTensor x = TestTensor::Of(Shape{1, 1000}, DType::kFloat32, Doubles(1000, 1.0));
  const auto masked = [&](const StepScalars& step, uint32_t stream) {
    TestTensor y = TestTensor::Zeros(x.shape);
    OpRun run{.kind = OpKind::kDropout,
              .attributes = {.dropout = 0.5F, .stream = stream},
              .inputs = {&x},
              .outputs = {&y},
              .step = step};
    run.Run();
    return y.bytes;
  };
  const auto base = masked({.seed = 1}, 0);
  EXPECT_EQ(base, masked({.seed = 1}, 0));
  EXPECT_NE(base, masked({.seed = 2}, 0));
  EXPECT_NE(base, masked({.seed = 1, .step = 2}, 0));
  EXPECT_NE(base, masked({.seed = 1, .micro_step = 1}, 0));
  EXPECT_NE(base, masked({.seed = 1}, 1));
}

TEST(Dropout, DoesNothingInEvaluation) {
  std::mt19937 random(2);
  TestTensor x = TestTensor::Random(Shape{3, 7}, DType::kFloat32, random);
  TestTensor y = TestTensor::Zeros(x.shape);
  OpRun run{.kind = OpKind::kDropout,
            .attributes = {.dropout = 0.5F},
            .inputs = {&x},
            .outputs = {&y},
            .step = {.training = false}};
  run.Run();
  EXPECT_EQ(x.bytes, y.bytes);
}

}  // namespace
}  // namespace headroom::engine::cpu
