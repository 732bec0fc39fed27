// SPDX-License-Identifier: Apache-2.0
//
// Random forward passes through everything that is done to a graph: lowered, differentiated,
// recomputed, updated, in place, planned and executed. Their bits must not depend on the plan, nor
// on what is computed again; nothing may read bytes that are not its own.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "engine/initialise.h"
#include "engine/tiny_models.h"
#include "graph/builder.h"
#include "graph/gradients.h"
#include "graph/memory_plan.h"
#include "graph/optimizer.h"
#include "graph/precision.h"
#include "graph/reuse.h"
#include "graph/verify.h"

namespace headroom::engine {
namespace {

using graph::Graph;
using graph::kNoTensor;
using graph::Recompute;
using graph::Role;
using graph::TensorId;

constexpr int64_t kBatch = 2;
constexpr int64_t kSequence = 9;
constexpr int64_t kVocabulary = 23;
constexpr int kHeads = 4;

// A stack of random layers over tensors of one width. Any of a layer's tensors may be read again,
// also by later layers; at the end all that nothing has read are added up.
class RandomForward {
 public:
  RandomForward(Graph& graph, uint64_t seed)
      : b_(graph, {.batch = kBatch, .sequence = kSequence}), random_(seed) {}

  TensorId Run() {
    b_.Enter("embed");
    const TensorId ids = b_.Input("ids", DType::kInt32, Shape{kBatch * kSequence});
    lengths_ = b_.Input("lengths", DType::kInt32, Shape{kBatch});
    const TensorId table = b_.EmbeddingTable("table", Shape{kVocabulary, width_});
    Yield(b_.Embedding({.ids = ids,
                        .table = table,
                        .positions = b_.EmbeddingTable("positions", Shape{kSequence, width_}),
                        .padding_row = 3}));
    const int layers = 1 + Below(4);
    for (int layer = 0; layer < layers; ++layer) {
      b_.Enter("layer." + std::to_string(layer), layer);
      const int ops = 1 + Below(5);
      for (int i = 0; i < ops; ++i) Step();
    }
    b_.Enter("head");
    TensorId sum = kNoTensor;
    for (const Value& value : values_) {
      if (value.read) continue;
      sum = sum == kNoTensor ? value.tensor : b_.Add(sum, value.tensor);
    }
    sum = b_.Norm({.x = sum, .gamma = Weight(Shape{width_}), .beta = Weight(Shape{width_})}).y;
    return Loss(sum, table);
  }

 private:
  struct Value {
    TensorId tensor;
    bool read = false;
  };

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool Maybe() { return Below(2) == 0; }
  float Rate() { return Maybe() ? 0.2F : 0.0F; }
  void Yield(TensorId id) { values_.push_back({id}); }
  TensorId Weight(Shape shape) { return b_.Weight("w" + std::to_string(++weights_), shape); }

  // Mostly of the latest.
  TensorId Pick() {
    const size_t back = Maybe() ? 0 : random_() % values_.size();
    Value& value = values_[values_.size() - 1 - back];
    value.read = true;
    return value.tensor;
  }

  TensorId Linear(TensorId x, int64_t in, int64_t out) {
    const bool transposed = Maybe();
    const TensorId weight = Weight(transposed ? Shape{in, out} : Shape{out, in});
    const TensorId bias = Maybe() ? Weight(Shape{out}) : kNoTensor;
    return b_.Linear(x, weight, bias, Kind::kMlp, transposed);
  }

  graph::ActivationKind Activation() { return static_cast<graph::ActivationKind>(Below(5)); }

  void Step() {
    switch (Below(8)) {
      case 0:
        return Yield(Linear(Pick(), width_, width_));
      case 1:
        return Norm();
      case 2:
        return Yield(b_.Activation(Pick(), Activation()));
      case 3:
        return Yield(b_.Glu(Linear(Pick(), width_, 2 * width_), Activation()));
      case 4: {
        const TensorId x = Pick();
        const TensorId y = b_.Dropout(x, 0.2F);
        return Yield(y);
      }
      case 5: {
        const TensorId a = Pick();
        return Yield(b_.Add(a, Pick()));
      }
      default:
        return Attention();
    }
  }

  void Norm() {
    const TensorId x = Pick();
    TensorId residual = Maybe() ? Pick() : kNoTensor;
    if (residual == x) residual = kNoTensor;
    const bool rms = Maybe();
    const graph::NormResult result =
        b_.Norm({.x = x,
                 .residual = residual,
                 .gamma = Weight(Shape{width_}),
                 .beta = rms ? kNoTensor : Weight(Shape{width_}),
                 .norm = rms ? graph::NormKind::kRmsNorm : graph::NormKind::kLayerNorm,
                 .dropout = Rate()});
    Yield(result.y);
    if (residual != kNoTensor && Maybe()) Yield(result.sum);
  }

  void Attention() {
    const int kv_heads = Maybe() ? kHeads : 2;
    const int head_dim = static_cast<int>(width_) / kHeads;
    const int64_t kv = int64_t{kv_heads} * head_dim;
    const TensorId packed = Linear(Pick(), width_, width_ + 2 * kv);
    if (Maybe()) {
      b_.Rope(b_.Columns(packed, 0, width_ + kv), Table("cos"), Table("sin"), kHeads + kv_heads,
              head_dim);
    }
    Yield(b_.Attention({.q = b_.Columns(packed, 0, width_),
                        .k = b_.Columns(packed, width_, kv),
                        .v = b_.Columns(packed, width_ + kv, kv),
                        .key_lengths = Maybe() ? lengths_ : kNoTensor,
                        .heads = kHeads,
                        .kv_heads = kv_heads,
                        .head_dim = head_dim,
                        .causal = Maybe(),
                        .dropout = Rate()}));
  }

  TensorId Table(const std::string& name) {
    const TensorId known = b_.graph().Find(Role::kBuffer, name);
    if (known != kNoTensor) return known;
    return b_.Buffer(name, Shape{kSequence, width_ / kHeads / 2});
  }

  TensorId Loss(TensorId x, TensorId table) {
    if (Below(3) == 0) {
      const TensorId labels = b_.Input("labels", DType::kInt32, Shape{kBatch});
      const TensorId row = b_.SelectRows(x, Maybe() ? lengths_ : kNoTensor, Maybe() ? 0 : -1);
      return b_.CrossEntropy(Linear(row, width_, 5), labels, {});
    }
    const TensorId labels = b_.Input("labels", DType::kInt32, Shape{kBatch * kSequence});
    const TensorId weight = Maybe() ? table : Weight(Shape{kVocabulary, width_});
    return b_.LinearLoss(x, weight, kNoTensor, labels, {.chunk_rows = Maybe() ? 5 : 0});
  }

  graph::GraphBuilder b_;
  std::mt19937_64 random_;
  const int64_t width_ = 16;
  int weights_ = 0;
  TensorId lengths_ = kNoTensor;
  std::vector<Value> values_;
};

struct Recipe {
  DType dtype = DType::kFloat32;
  bool masters = true;
  Recompute recompute = Recompute::kNone;
  bool reuse = true;
  graph::OptimizerOptions optimizer = {};
};

Graph TrainingGraph(uint64_t seed, const Recipe& recipe) {
  Graph graph;
  RandomForward(graph, seed).Run();
  LowerPrecision(graph, recipe.dtype, recipe.masters);
  AppendBackward(graph, {.recompute = recipe.recompute, .weight_gradients = recipe.dtype});
  AppendOptimizer(graph, recipe.optimizer);
  if (recipe.reuse) ReuseInputs(graph);
  return graph;
}

// One step from the same values; the bytes of all that lasts.
class OneStep {
 public:
  OneStep(const Graph& graph, const graph::MemoryPlan& plan)
      : graph_(graph),
        arena_(*HostArena::Create(plan.size)),
        executor_(graph, plan, arena_.bytes()) {
    std::mt19937_64 random(5);
    for (size_t i = 0; i < graph.tensors().size(); ++i) {
      const graph::Tensor& tensor = graph.tensors()[i];
      if (tensor.base) continue;
      if (tensor.role == Role::kInput) FillIds(tensor, View(i), random);
      if (tensor.role == Role::kBuffer && tensor.name.size() == 3) FillFloats(View(i), random, 1);
    }
    for (const graph::Parameter& parameter : graph.parameters()) {
      const TensorView& view = executor_.View(parameter.truth());
      if (view.dtype == DType::kFloat32) {
        FillFloats(view, random, 0.3F);
      } else {  // bfloat16 of about 0.1 and -0.1
        for (int64_t k = 0; k < view.shape.NumElements(); ++k) {
          view.As<uint16_t>()[k] =
              static_cast<uint16_t>((random() % 2 == 0 ? 0x3d00 : 0xbd00) + random() % 256);
        }
      }
    }
    CopyMasters(executor_);
  }

  void Run(bool poison) {
    const StepScalars scalars{.seed = 3, .targets = 6, .learning_rate = 1e-3F, .max_grad_norm = 1};
    for (size_t i = 0; i < graph_.ops().size(); ++i) {
      if (poison) executor_.Poison(i);
      executor_.RunOps(i, i + 1, scalars);
    }
  }

  std::vector<std::byte> Bytes(Role role) const {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < graph_.tensors().size(); ++i) {
      const graph::Tensor& tensor = graph_.tensors()[i];
      if (tensor.base || tensor.role != role) continue;
      bytes.insert(bytes.end(), View(i).data, View(i).data + SizeOf(tensor).count());
    }
    return bytes;
  }
  bool IsFinite() const {
    const TensorId norm = graph_.Find(Role::kBuffer, "grad_norm");
    return executor_.View(norm).As<float>()[1] == 0;
  }

 private:
  const TensorView& View(size_t i) const { return executor_.View(static_cast<TensorId>(i)); }

  static void FillFloats(const TensorView& view, std::mt19937_64& random, float scale) {
    for (int64_t k = 0; k < view.shape.NumElements(); ++k) {
      view.As<float>()[k] = scale * (static_cast<float>(random() % 2001) / 1000.0F - 1);
    }
  }

  static void FillIds(const graph::Tensor& tensor, const TensorView& view,
                      std::mt19937_64& random) {
    for (int64_t k = 0; k < view.shape.NumElements(); ++k) {
      const bool few = view.shape.NumElements() == kBatch;
      view.As<int32_t>()[k] = static_cast<int32_t>(random() % (few ? 5 : kVocabulary));
      if (tensor.name == "lengths") view.As<int32_t>()[k] = k == 0 ? kSequence : 6;
      if (tensor.name == "labels" && !few && k % 3 == 0) view.As<int32_t>()[k] = -100;
    }
  }

  const Graph& graph_;
  HostArena arena_;
  Executor executor_;
};

constexpr uint64_t kGraphs = 150;

std::vector<Recipe> Recipes() {
  std::vector<Recipe> recipes;
  for (const auto recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
    recipes.push_back({.recompute = recompute});
    recipes.push_back({.dtype = DType::kBFloat16, .recompute = recompute});
    recipes.push_back({.dtype = DType::kBFloat16, .masters = false, .recompute = recompute});
    recipes.push_back({.recompute = recompute, .optimizer = {.kind = graph::OptimizerKind::kSgd}});
  }
  return recipes;
}

TEST(RandomGraph, HasTheSameBitsWhereverItLies) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    for (const Recipe& recipe : Recipes()) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", recompute " +
                   std::string(Name(recipe.recompute)));
      const Graph graph = TrainingGraph(seed, recipe);
      const Status verified = Verify(graph);
      ASSERT_TRUE(verified.ok()) << verified.error().message;
      const graph::MemoryPlan plan = PlanMemory(graph);
      const Status checked = CheckMemory(graph, plan);
      ASSERT_TRUE(checked.ok()) << checked.error().message;
      ASSERT_EQ(LedgerOf(graph, plan).peak_allocated(), plan.lower_bound);
      OneStep planned(graph, plan);
      OneStep separate(graph, SeparateBuffers(graph));
      planned.Run(true);
      separate.Run(false);
      ASSERT_TRUE(planned.IsFinite());
      for (const Role role :
           {Role::kWeight, Role::kMaster, Role::kGradient, Role::kOptimizer, Role::kBuffer}) {
        ASSERT_EQ(planned.Bytes(role), separate.Bytes(role)) << Name(role);
      }
    }
  }
}

TEST(RandomGraph, HasTheSameBitsWhenComputedAgainAndInPlace) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      const Graph plain = TrainingGraph(seed, {.dtype = dtype, .reuse = false});
      OneStep expected(plain, SeparateBuffers(plain));
      expected.Run(false);
      for (const auto recompute : {Recompute::kNone, Recompute::kCheap, Recompute::kBlock}) {
        const Graph graph = TrainingGraph(seed, {.dtype = dtype, .recompute = recompute});
        OneStep step(graph, PlanMemory(graph));
        step.Run(true);
        ASSERT_EQ(step.Bytes(Role::kGradient), expected.Bytes(Role::kGradient))
            << "recompute " << Name(recompute);
        ASSERT_EQ(step.Bytes(Role::kBuffer), expected.Bytes(Role::kBuffer));
      }
    }
  }
}

}  // namespace
}  // namespace headroom::engine
