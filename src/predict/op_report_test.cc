// SPDX-License-Identifier: Apache-2.0
#include "predict/op_report.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "predict/op_observer.h"
#include "predict/ops.h"
#include "predict/predict.h"

namespace headroom {
namespace {

struct SeenOp {
  std::string name;
  std::string module;
  std::string phase;
  OpWork work;
};

class Recorder final : public OpObserver {
 public:
  void OnOp(const Op& op) override {
    ops.push_back({op.name, std::string(op.module), std::string(op.phase), op.work});
  }
  double Flops(std::string_view phase, OpClass op_class) const {
    double flops = 0;
    for (const SeenOp& op : ops) {
      if (op.phase == phase && op.work.op_class == op_class) flops += op.work.flops;
    }
    return flops;
  }
  const SeenOp* Find(std::string_view name) const {
    for (const SeenOp& op : ops) {
      if (op.name == name) return &op;
    }
    return nullptr;
  }

  std::vector<SeenOp> ops;
};

TEST(OpReport, CountsAProduct) {
  Recorder seen;
  predict::Runtime runtime(MeasuredPlatform(), &seen);
  const predict::Tensor a = predict::Empty(runtime, {8, 16}, DType::kBFloat16);
  const predict::Tensor b = predict::Empty(runtime, {16, 4}, DType::kBFloat16);
  const predict::Tensor out = predict::Mm(a, b);
  ASSERT_EQ(seen.ops.size(), 1u);
  const OpWork& work = seen.ops[0].work;
  EXPECT_EQ(work.op_class, OpClass::kContraction);
  EXPECT_EQ(work.flops, 1024);
  EXPECT_EQ(work.read, 384);
  EXPECT_EQ(work.written, 64);
  EXPECT_EQ(work.dtype, DType::kBFloat16);
}

TEST(OpReport, ReadsABroadcastOperandOnce) {
  Recorder seen;
  predict::Runtime runtime(MeasuredPlatform(), &seen);
  const predict::Tensor x = predict::Empty(runtime, {8, 16}, DType::kFloat32);
  const predict::Tensor row =
      predict::Expand(predict::Empty(runtime, {16}, DType::kFloat32), {8, 16});
  const predict::Tensor sum = predict::Add(x, row);
  ASSERT_EQ(seen.ops.size(), 1u);
  EXPECT_EQ(seen.ops[0].work.read, (8 * 16 + 16) * 4);
  EXPECT_EQ(seen.ops[0].work.flops, 8 * 16);
}

TEST(OpReport, TellsNobodyWithoutAnObserver) {
  predict::Runtime runtime(MeasuredPlatform());
  const predict::Tensor a = predict::Empty(runtime, {8, 8}, DType::kFloat32);
  EXPECT_FALSE(runtime.observed());
  EXPECT_EQ(predict::Mm(a, a).numel(), 64);
}

Recorder ObserveBert(bool checkpointing) {
  constexpr std::string_view kConfig =
      R"({"model_type": "bert", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 1024, "max_position_embeddings": 128})";
  const auto config = ModelConfig::FromJson(kConfig, "test");
  EXPECT_TRUE(config.ok());
  Recipe recipe;
  recipe.task = Task::kSequenceClassification;
  recipe.per_device_train_batch_size = 4;
  recipe.sequence_length = 128;
  recipe.precision = Precision::kBf16;
  recipe.gradient_checkpointing = checkpointing;
  recipe.steps = 1;
  Recorder seen;
  EXPECT_TRUE(Predict(*config, recipe, MeasuredPlatform(), &seen).ok());
  return seen;
}

TEST(OpReport, CountsTheProductsOfAnEncoder) {
  const Recorder seen = ObserveBert(false);
  // A layer: query, key, value and output of h x h, two of h x 4h, and two products of attention a
  // token; the pooler and the classifier see one token a sample.
  constexpr double kTokens = 4 * 128;
  constexpr double kHidden = 256;
  const double layer = 2 * kTokens * (12 * kHidden * kHidden + 2 * 128 * kHidden);
  const double head = 2 * 4 * (kHidden * kHidden + kHidden * 2);
  const double forward = seen.Flops("forward", OpClass::kContraction);
  EXPECT_DOUBLE_EQ(forward, 2 * layer + head);
  // Backward: two products for each of a linear layer, five for attention's two.
  const double attention = 2 * kTokens * 2 * 128 * kHidden;
  EXPECT_DOUBLE_EQ(seen.Flops("backward", OpClass::kContraction),
                   2 * forward + 0.5 * 2 * attention);
}

TEST(OpReport, CountsRecomputingInBackward) {
  const Recorder plain = ObserveBert(false);
  const Recorder checkpointed = ObserveBert(true);
  EXPECT_DOUBLE_EQ(checkpointed.Flops("forward", OpClass::kContraction),
                   plain.Flops("forward", OpClass::kContraction));
  EXPECT_GT(checkpointed.Flops("backward", OpClass::kContraction),
            1.4 * plain.Flops("backward", OpClass::kContraction));
}

TEST(OpReport, NamesTheModuleInBackwardToo) {
  const Recorder seen = ObserveBert(false);
  bool found = false;
  for (const SeenOp& op : seen.ops) {
    found |= op.phase == "backward" && op.name == "aten::mm" &&
             op.module == "bert.encoder.layer.1.output.dense";
  }
  EXPECT_TRUE(found);
}

TEST(OpReport, CountsWhatTheOptimizerMoves) {
  const Recorder seen = ObserveBert(false);
  double moved = 0;
  for (const SeenOp& op : seen.ops) {
    if (op.name == "optimizer.step") moved += op.work.read + op.work.written;
  }
  int64_t parameters = 0;
  {
    const auto norm = seen.Find("aten::_foreach_norm");
    ASSERT_NE(norm, nullptr);
    parameters = static_cast<int64_t>(norm->work.read) / 4;
  }
  // Fused AdamW in fp32: four reads and three writes.
  EXPECT_DOUBLE_EQ(moved, 28.0 * static_cast<double>(parameters));
}

}  // namespace
}  // namespace headroom
