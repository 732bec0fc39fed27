// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;

constexpr int64_t kIgnored = -100;

double Loss(const Doubles& logits, const std::vector<int64_t>& labels, double smoothing) {
  const size_t classes = logits.size() / labels.size();
  double loss = 0;
  for (size_t row = 0; row < labels.size(); ++row) {
    if (labels[row] == kIgnored) continue;
    const double* x = logits.data() + row * classes;
    double sum = 0;
    double plain = 0;
    for (size_t i = 0; i < classes; ++i) {
      sum += std::exp(x[i]);
      plain += x[i];
    }
    const double uniform = std::log(sum) - plain / static_cast<double>(classes);
    const double nll = std::log(sum) - x[labels[row]];
    loss += (1 - smoothing) * nll + smoothing * uniform;
  }
  return loss;
}

std::vector<int64_t> Labels(int64_t rows, int64_t classes, std::mt19937& random) {
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < rows; ++i) {
    const auto label = static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
    labels.push_back(i % 4 == 3 ? kIgnored : label);
  }
  return labels;
}

TEST(CrossEntropy, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(1);
  const Shape shapes[] = {{1, 1}, {3, 7}, {7, 65}, {5, 1100}, {300, 9}};
  for (const DType dtype : kStorageTypes) {
    for (const Shape& shape : shapes) {
      for (const float smoothing : {0.0F, 0.1F}) {
        const std::vector<int64_t> labels = Labels(shape[0], shape[1], random);
        TestTensor logits = TestTensor::Random(shape, dtype, random, 3);
        TestTensor indices = TestTensor::Indices(labels, DType::kInt32);
        TestTensor loss = TestTensor::Of(Shape{1}, DType::kFloat32, {2.0});
        const Doubles x = logits.Values();
        const auto smooth = static_cast<double>(smoothing);
        const double want = Loss(x, labels, smooth);
        const auto reference = [&](const Doubles& v) { return Doubles{Loss(v, labels, smooth)}; };
        const Slopes slopes = NumericGradient(reference, x, {8.0 / 5}, random, 30);
        OpRun run{.kind = OpKind::kCrossEntropy,
                  .attributes = {.label_smoothing = smoothing},
                  .inputs = {&logits, &indices},
                  .outputs = {&loss},
                  .step = {.loss_scale = 8, .targets = 5}};
        run.Run();
        ExpectClose(loss, {want + 2}, {.terms = 64, .magnitude = want + 10});
        ExpectSlopes(logits, slopes,
                     {.terms = 32 + static_cast<double>(shape[1]) / 16, .magnitude = 2});
      }
    }
  }
}

TEST(CrossEntropy, IsExactForLargeLogits) {
  TestTensor logits = TestTensor::Of(Shape{1, 3}, DType::kFloat32, {1000, 0, -1000});
  TestTensor labels = TestTensor::Indices({1});
  TestTensor loss = TestTensor::Zeros(Shape{1});
  OpRun run{.kind = OpKind::kCrossEntropy, .inputs = {&logits, &labels}, .outputs = {&loss}};
  run.Run();
  EXPECT_EQ(loss.Values(), Doubles{1000});
  EXPECT_EQ(logits.Values(), (Doubles{1, -1, 0}));
}

TEST(CrossEntropy, LeavesLogitsAloneInEvaluation) {
  std::mt19937 random(2);
  TestTensor logits = TestTensor::Random(Shape{4, 9}, DType::kBFloat16, random);
  TestTensor labels = TestTensor::Indices({1, 2, kIgnored, 4});
  TestTensor loss = TestTensor::Zeros(Shape{1});
  const TestTensor before = logits;
  OpRun run{.kind = OpKind::kCrossEntropy,
            .inputs = {&logits, &labels},
            .outputs = {&loss},
            .step = {.training = false}};
  run.Run();
  EXPECT_EQ(logits.bytes, before.bytes);
}

struct LossRun {
  TestTensor loss = TestTensor::Zeros(Shape{1});
  TestTensor dx, dweight, dbias;
};

struct LossCase {
  int64_t rows, width, classes;
  DType dtype = DType::kFloat32;
  bool transposed = false;
  int micro_step = 0;
};

struct LossInputs {
  TestTensor x, weight, bias, labels;
};

LossInputs MakeInputs(const LossCase& c, std::mt19937& random) {
  const Shape shape = c.transposed ? Shape{c.width, c.classes} : Shape{c.classes, c.width};
  return {TestTensor::Random(Shape{c.rows, c.width}, c.dtype, random),
          TestTensor::Random(shape, c.dtype, random, 0.5),
          TestTensor::Random(Shape{c.classes}, c.dtype, random),
          TestTensor::Indices(Labels(c.rows, c.classes, random))};
}

LossRun RunLoss(const LossCase& c, LossInputs& inputs, int64_t chunk, DType logits_dtype) {
  LossRun result;
  result.dx = TestTensor::Zeros(inputs.x.shape, c.dtype);
  result.dweight = TestTensor::Zeros(inputs.weight.shape);
  result.dbias = TestTensor::Zeros(Shape{c.classes});
  TestTensor logits = TestTensor::Zeros(Shape{chunk, c.classes}, logits_dtype);
  OpRun run{.kind = OpKind::kLinearLoss,
            .attributes = {.transposed = c.transposed, .label_smoothing = 0.1F},
            .inputs = {&inputs.x, &inputs.weight, &inputs.bias, &inputs.labels},
            .outputs = {&result.loss, &result.dx, &result.dweight, &result.dbias},
            .scratch = {&logits},
            .step = {.micro_step = c.micro_step, .loss_scale = 4, .targets = 2}};
  run.Run();
  return result;
}

void CheckLinearLoss(const LossCase& c, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << c.rows << "x" << c.width << "x" << c.classes << " "
                                  << Name(c.dtype) << c.transposed);
  LossInputs inputs = MakeInputs(c, random);
  const LossRun got = RunLoss(c, inputs, 3, DType::kFloat32);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < c.rows; ++i) labels.push_back(inputs.labels.View().As<int64_t>()[i]);
  const auto forward = [&](const Doubles& x, const Doubles& weight, const Doubles& bias) {
    Doubles logits;
    for (int64_t row = 0; row < c.rows; ++row) {
      for (int64_t out = 0; out < c.classes; ++out) {
        double sum = bias[static_cast<size_t>(out)];
        for (int64_t in = 0; in < c.width; ++in) {
          const int64_t at = c.transposed ? in * c.classes + out : out * c.width + in;
          sum += x[static_cast<size_t>(row * c.width + in)] * weight[static_cast<size_t>(at)];
        }
        logits.push_back(sum);
      }
    }
    return Doubles{Loss(logits, labels, static_cast<double>(0.1F))};
  };
  const Doubles x = inputs.x.Values();
  const Doubles w = inputs.weight.Values();
  const Doubles b = inputs.bias.Values();
  const double terms = static_cast<double>(c.rows + c.width + c.classes) + 64;
  const Closeness closeness{.terms = terms, .magnitude = 16};
  const double want = forward(x, w, b)[0];
  ExpectClose(got.loss, {want}, {.terms = terms, .magnitude = want + 10});
  const auto of_x = [&](const Doubles& v) { return forward(v, w, b); };
  const auto of_w = [&](const Doubles& v) { return forward(x, v, b); };
  const auto of_b = [&](const Doubles& v) { return forward(x, w, v); };
  ExpectSlopes(got.dx, NumericGradient(of_x, x, {2.0}, random, 30), closeness);
  ExpectSlopes(got.dweight, NumericGradient(of_w, w, {2.0}, random, 30), closeness);
  ExpectSlopes(got.dbias, NumericGradient(of_b, b, {2.0}, random, 30), closeness);
}

TEST(LinearLoss, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(3);
  for (const DType dtype : kStorageTypes) {
    CheckLinearLoss({.rows = 7, .width = 5, .classes = 33, .dtype = dtype}, random);
    CheckLinearLoss({.rows = 10, .width = 17, .classes = 9, .dtype = dtype, .transposed = true},
                    random);
  }
}

TEST(LinearLoss, InChunksHasTheBitsOfOneChunk) {
  if (!kExactProducts) GTEST_SKIP() << "OpenBLAS multiplies";
  std::mt19937 random(4);
  for (const DType dtype : kStorageTypes) {
    const LossCase c{.rows = 700, .width = 24, .classes = 65, .dtype = dtype};
    LossInputs inputs = MakeInputs(c, random);
    const LossRun whole = RunLoss(c, inputs, c.rows, dtype);
    const LossRun chunks = RunLoss(c, inputs, kLossRows, dtype);
    EXPECT_EQ(whole.loss.bytes, chunks.loss.bytes);
    EXPECT_EQ(whole.dx.bytes, chunks.dx.bytes);
    EXPECT_EQ(whole.dweight.bytes, chunks.dweight.bytes);
    EXPECT_EQ(whole.dbias.bytes, chunks.dbias.bytes);
    // Rows are independent: any chunk yields the same dx.
    EXPECT_EQ(whole.dx.bytes, RunLoss(c, inputs, 37, dtype).dx.bytes);
  }
}

TEST(LinearLoss, AddsItsWeightGradientsInLaterMicroSteps) {
  std::mt19937 random(5);
  const LossCase c{.rows = 6, .width = 5, .classes = 9};
  LossInputs inputs = MakeInputs(c, random);
  LossRun once = RunLoss(c, inputs, 2, DType::kFloat32);
  TestTensor logits = TestTensor::Zeros(Shape{2, c.classes});
  const Doubles first = once.dweight.Values();
  OpRun again{.kind = OpKind::kLinearLoss,
              .attributes = {.label_smoothing = 0.1F},
              .inputs = {&inputs.x, &inputs.weight, &inputs.bias, &inputs.labels},
              .outputs = {&once.loss, &once.dx, &once.dweight, &once.dbias},
              .scratch = {&logits},
              .step = {.micro_step = 1, .loss_scale = 4, .targets = 2}};
  again.Run();
  Doubles twice = first;
  for (double& value : twice) value *= 2;
  ExpectClose(once.dweight, twice, {.terms = 16});
}

}  // namespace
}  // namespace headroom::engine::cpu
