// SPDX-License-Identifier: Apache-2.0
#include "graph/op_work.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/builder.h"
#include "graph/gradients.h"
#include "graph/optimizer.h"
#include "graph/precision.h"

namespace headroom::graph {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kSequence = 8;
constexpr double kRows = 16;  // kBatch * kSequence

class OpWorkTest : public testing::Test {
 protected:
  // Of the op of this kind that stands first in the list.
  OpWork Work(OpKind kind, Micro micro = Micro::kFirst) const {
    for (const Op& op : graph_.ops()) {
      if (op.kind == kind) return WorkOf(graph_, op, micro);
    }
    ADD_FAILURE() << "no " << Name(kind);
    return {};
  }
  TensorId Hidden(int64_t columns) {
    return graph_.Add(
        {.name = "h", .shape = Shape{kBatch * kSequence, columns}, .role = Role::kActivation});
  }
  void Train(DType compute, const OptimizerOptions& optimizer = {}) {
    LowerPrecision(graph_, compute, true);
    AppendBackward(graph_, {.weight_gradients = compute});
    AppendOptimizer(graph_, optimizer);
  }

  Graph graph_;
  GraphBuilder b_{graph_, {.batch = kBatch, .sequence = kSequence}};
};

TEST_F(OpWorkTest, CountsTwoFlopsForEachProductOfALinear) {
  const TensorId x = b_.Norm({.x = Hidden(4), .gamma = b_.Weight("gamma", Shape{4})}).y;
  const TensorId y =
      b_.Linear(x, b_.Weight("w", Shape{6, 4}), b_.Weight("b", Shape{6}), Kind::kMlp);
  const TensorId labels = b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence});
  b_.CrossEntropy(y, labels, {});
  Train(DType::kBFloat16);
  const OpWork forward = Work(OpKind::kLinear);
  EXPECT_EQ(forward.flops, 2 * kRows * 6 * 4);
  EXPECT_EQ(forward.read, 2 * (kRows * 4 + 6 * 4 + 6));
  EXPECT_EQ(forward.written, 2 * kRows * 6);
  EXPECT_EQ(forward.dtype, DType::kBFloat16);
  const OpWork of_input = Work(OpKind::kLinearBackwardInput);
  EXPECT_EQ(of_input.flops, forward.flops);
  EXPECT_EQ(of_input.read, 2 * (kRows * 6 + 6 * 4));
  EXPECT_EQ(of_input.written, 2 * kRows * 4);
  const OpWork of_weight = Work(OpKind::kLinearBackwardWeight);
  EXPECT_EQ(of_weight.flops, forward.flops);
  EXPECT_EQ(of_weight.read, 2 * (kRows * 6 + kRows * 4));
  EXPECT_EQ(of_weight.written, 2 * (6 * 4 + 6));
  // What the window's first micro-step wrote is read and added to.
  const OpWork later = Work(OpKind::kLinearBackwardWeight, Micro::kLater);
  EXPECT_EQ(later.read, of_weight.read + of_weight.written);
  EXPECT_EQ(later.written, of_weight.written);
  // The logits become their own gradient.
  const OpWork loss = Work(OpKind::kCrossEntropy);
  EXPECT_EQ(loss.read, 2 * kRows * 6 + 4 * kRows);
  EXPECT_EQ(loss.written, 2 * kRows * 6 + 4);
}

TEST_F(OpWorkTest, CountsATransposedWeightAlike) {
  b_.Linear(Hidden(4), b_.Weight("w", Shape{4, 6}), kNoTensor, Kind::kMlp, true);
  EXPECT_EQ(Work(OpKind::kLinear).flops, 2 * kRows * 6 * 4);
}

TEST_F(OpWorkTest, LeavesOutWhatACausalMaskHides) {
  const auto attention = [](bool causal, int64_t keys) {
    Graph graph;
    GraphBuilder b(graph, {.batch = kBatch, .sequence = kSequence});
    const auto heads = [&](int64_t rows, int64_t columns) {
      return graph.Add(
          {.name = "h", .shape = Shape{kBatch * rows, columns}, .role = Role::kActivation});
    };
    b.Attention({.q = heads(kSequence, 12),
                 .k = heads(keys, 6),
                 .v = heads(keys, 6),
                 .heads = 4,
                 .kv_heads = 2,
                 .head_dim = 3,
                 .causal = causal,
                 .key_sequence = keys == kSequence ? 0 : keys});
    return WorkOf(graph, graph.ops().front());
  };
  const OpWork all = attention(false, kSequence);
  EXPECT_EQ(all.flops, 4.0 * kBatch * 4 * kSequence * kSequence * 3);
  EXPECT_EQ(all.read, 4 * (kRows * 12 + 2 * kRows * 6));
  EXPECT_EQ(all.written, 4 * (kRows * 12 + kRows * 4));
  // Row r sees r + 1 keys: half of all pairs and half the diagonal.
  EXPECT_EQ(attention(true, kSequence).flops, 4.0 * kBatch * 4 * (8 * 9 / 2) * 3);
  EXPECT_EQ(attention(false, 2 * kSequence).flops, 2 * all.flops);
}

TEST_F(OpWorkTest, CountsTheColumnsOfAViewAlone) {
  const TensorId packed = Hidden(30);
  b_.Activation(b_.Columns(packed, 10, 10), ActivationKind::kRelu);
  const OpWork work = Work(OpKind::kActivation);
  EXPECT_EQ(work.flops, kRows * 10);
  EXPECT_EQ(work.read, 4 * kRows * 10);
}

TEST_F(OpWorkTest, BackwardOfAttentionComputesFiveProductsForTwo) {
  const TensorId x = Hidden(4);
  const TensorId qkv = b_.Linear(x, b_.Weight("qkv", Shape{12, 4}), kNoTensor, Kind::kAttention);
  const TensorId o = b_.Attention({.q = b_.Columns(qkv, 0, 4),
                                   .k = b_.Columns(qkv, 4, 4),
                                   .v = b_.Columns(qkv, 8, 4),
                                   .heads = 2,
                                   .kv_heads = 2,
                                   .head_dim = 2});
  b_.LinearLoss(o, b_.Weight("head", Shape{10, 4}), kNoTensor,
                b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence}), {});
  Train(DType::kFloat32);
  EXPECT_EQ(Work(OpKind::kAttentionBackward).flops, 2.5 * Work(OpKind::kAttention).flops);
}

// Loss, dx and dweight of one op: three products, and 9 FLOP of softmax for each logit. The logits
// themselves are no traffic, however many rows exist at a time.
TEST_F(OpWorkTest, CountsTheGradientsThatALossMakes) {
  const TensorId x = b_.Linear(Hidden(4), b_.Weight("w", Shape{4, 4}), kNoTensor, Kind::kMlp);
  const TensorId labels = b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence});
  b_.LinearLoss(x, b_.Weight("head", Shape{10, 4}), kNoTensor, labels, {.chunk_rows = 5});
  EXPECT_EQ(Work(OpKind::kLinearLoss).flops, kRows * 10 * (2 * 4 + 9));
  Train(DType::kFloat32);
  const OpWork work = Work(OpKind::kLinearLoss);
  EXPECT_EQ(work.flops, kRows * 10 * (3 * 2 * 4 + 9));
  EXPECT_EQ(work.read, 4 * (kRows * 4 + 10 * 4 + kRows));
  EXPECT_EQ(work.written, 4 * (1 + kRows * 4 + 10 * 4));
}

TEST_F(OpWorkTest, ReadsTheRowsOfATableThatTokensName) {
  const TensorId table = b_.EmbeddingTable("table", Shape{1000, 4});
  const TensorId positions = b_.EmbeddingTable("positions", Shape{64, 4});
  const TensorId ids = b_.Input("ids", DType::kInt32, Shape{kBatch * kSequence});
  const TensorId x = b_.Embedding({.ids = ids, .table = table, .positions = positions});
  b_.LinearLoss(x, b_.Weight("head", Shape{10, 4}), kNoTensor,
                b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence}), {});
  Train(DType::kFloat32);
  const OpWork forward = Work(OpKind::kEmbedding);
  EXPECT_EQ(forward.flops, kRows * 4);
  EXPECT_EQ(forward.read, 4 * (kRows + kRows * 4 + kSequence * 4));
  EXPECT_EQ(forward.written, 4 * kRows * 4);
  EXPECT_EQ(Work(OpKind::kEmbeddingBackward).written, 4 * (1000 * 4 + 64 * 4));
  EXPECT_EQ(Work(OpKind::kEmbeddingBackward, Micro::kLater).written, 4 * 2 * kRows * 4);
}

TEST_F(OpWorkTest, NormReadsItsResidualAndWritesTheSum) {
  const TensorId gamma = b_.Weight("gamma", Shape{4});
  const TensorId beta = b_.Weight("beta", Shape{4});
  b_.Norm({.x = Hidden(4), .residual = Hidden(4), .gamma = gamma, .beta = beta, .dropout = 0.1F});
  const OpWork work = Work(OpKind::kNorm);
  EXPECT_EQ(work.flops, kRows * 4 * (8 + 2 + 1));
  EXPECT_EQ(work.read, 4 * (2 * kRows * 4 + 2 * 4));
  EXPECT_EQ(work.written, 4 * (2 * kRows * 4 + 2 * kRows));
}

// Of 16-bit training with masters: master and both moments are read and written, the gradient is
// read, the copy is written.
TEST_F(OpWorkTest, UpdateReadsWhatItWritesButTheCopy) {
  const TensorId x = Hidden(4);
  b_.LinearLoss(x, b_.Weight("head", Shape{10, 4}), kNoTensor,
                b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence}), {});
  Train(DType::kBFloat16);
  const OpWork update = Work(OpKind::kUpdate);
  EXPECT_EQ(update.flops, 40 * 15);
  EXPECT_EQ(update.read, 40 * (3 * 4 + 2) + 8);
  EXPECT_EQ(update.written, 40 * (3 * 4 + 2));
  const OpWork norm = Work(OpKind::kGradNorm);
  EXPECT_EQ(norm.flops, 40 * 2);
  EXPECT_EQ(norm.read, 40 * 2);
}

TEST_F(OpWorkTest, SgdKeepsNoMoments) {
  b_.LinearLoss(Hidden(4), b_.Weight("head", Shape{10, 4}), kNoTensor,
                b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence}), {});
  Train(DType::kFloat32, {.kind = OptimizerKind::kSgd});
  EXPECT_EQ(Work(OpKind::kUpdate).flops, 40 * 3);
  EXPECT_EQ(Work(OpKind::kUpdate).written, 40 * 4);
}

}  // namespace
}  // namespace headroom::graph
