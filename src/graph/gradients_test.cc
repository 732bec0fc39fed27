// SPDX-License-Identifier: Apache-2.0
#include "graph/gradients.h"

#include <gtest/gtest.h>

#include <string>

#include "graph/builder.h"
#include "graph/verify.h"

namespace headroom::graph {
namespace {

class BiasGradientTest : public testing::Test {
 protected:
  TensorId Hidden() {
    return b_.Input("h" + std::to_string(inputs_++), DType::kFloat32, Shape{16, 4});
  }
  TensorId Linear(TensorId x, const std::string& name, int64_t in, int64_t out) {
    return b_.Linear(x, b_.Weight(name + ".weight", Shape{out, in}),
                     b_.Weight(name + ".bias", Shape{out}), Kind::kMlp);
  }
  TensorId Norm(TensorId x, TensorId residual) {
    const std::string name = "norm" + std::to_string(norms_++);
    return b_
        .Norm({.x = x,
               .residual = residual,
               .gamma = b_.Weight(name + ".weight", Shape{4}),
               .beta = b_.Weight(name + ".bias", Shape{4}),
               .dropout = 0.1F})
        .y;
  }
  void LossOf(TensorId x) {
    b_.LinearLoss(x, b_.Weight("head", Shape{10, 4}), kNoTensor,
                  b_.Input("labels", DType::kInt32, Shape{16}), {});
    AppendBackward(graph_, {.weight_gradients = DType::kFloat32});
    const Status verified = Verify(graph_);
    EXPECT_TRUE(verified.ok()) << verified.error().message;
  }
  // The op that writes the gradient of this bias.
  std::string WriterOf(const std::string& bias) const {
    std::string writer;
    for (const Op& op : graph_.ops()) {
      for (const TensorId output : op.outputs) {
        if (op.phase != Phase::kBackward || output == kNoTensor) continue;
        if (graph_.tensor(output).name != bias) continue;
        EXPECT_EQ(writer, "") << bias << " is written twice";
        writer = Name(op.kind);
      }
    }
    return writer;
  }

  Graph graph_;
  GraphBuilder b_{graph_, {.batch = 2, .sequence = 8}};
  int norms_ = 0;
  int inputs_ = 0;
};

TEST_F(BiasGradientTest, IsSummedWhereItsRowsAreWritten) {
  const TensorId x = Norm(Hidden(), Hidden());
  const TensorId wide = b_.Activation(Linear(x, "up", 4, 6), ActivationKind::kGelu);
  LossOf(Norm(Linear(wide, "down", 6, 4), x));
  EXPECT_EQ(WriterOf("up.bias"), "activation_backward");
  EXPECT_EQ(WriterOf("down.bias"), "norm_backward");
}

TEST_F(BiasGradientTest, IsOfAllThatItsRowsOwe) {
  // What two ops read is owed the sum of both.
  const TensorId both = Linear(Norm(Hidden(), Hidden()), "both", 4, 4);
  const TensorId left = b_.Activation(both, ActivationKind::kGelu);
  const TensorId right = b_.Activation(both, ActivationKind::kRelu);
  LossOf(Norm(b_.Add(left, right), Hidden()));
  EXPECT_EQ(WriterOf("both.bias"), "linear_backward_weight");
}

}  // namespace
}  // namespace headroom::graph
