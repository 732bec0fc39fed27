// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/cpu/op_harness.h"

namespace {
std::atomic<int64_t> allocations = 0;
}

// Counts what the whole program takes from the heap through C++.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(size_t size) {
  void* memory = operator new(size, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;

struct PreparedOp {
  OpKind kind{};
  graph::OpAttributes attributes;
  std::vector<TensorView> inputs;
  std::vector<TensorView> outputs;
  std::vector<TensorView> scratch;
};

TEST(CpuOps, AllocateNothingOnceTheirThreadsHaveBuffers) {
  std::mt19937 random(1);
  const auto make = [&](const Shape& shape) {
    return TestTensor::Random(shape, DType::kBFloat16, random);
  };
  TestTensor x = make(Shape{128, 64});
  TestTensor y = make(Shape{128, 64});
  TestTensor weight = make(Shape{64, 64});
  TestTensor dweight = make(Shape{64, 64});
  TestTensor gamma = make(Shape{64});
  TestTensor table = make(Shape{10, 64});
  TestTensor rstd = TestTensor::Zeros(Shape{128});
  TestTensor lse = TestTensor::Zeros(Shape{2, 4, 64});
  TestTensor dq = make(Shape{128, 64});
  TestTensor dk = make(Shape{128, 64});
  TestTensor dv = make(Shape{128, 64});
  TestTensor loss = TestTensor::Zeros(Shape{1});
  TestTensor logits = TestTensor::Zeros(Shape{50, 64});
  TestTensor ids = TestTensor::Indices(std::vector<int64_t>(128, 3));
  TestTensor order = TestTensor::Zeros(Shape{128}, DType::kInt32);
  TestTensor norm = TestTensor::Zeros(Shape{2});
  TestTensor m = TestTensor::Zeros(Shape{64, 64}, DType::kUInt8);
  TestTensor v = m;
  TestTensor scales = TestTensor::Zeros(Shape{16});
  TestTensor other_scales = scales;
  const graph::OpAttributes heads{
      .dropout = 0.1F, .heads = 4, .kv_heads = 4, .head_dim = 16, .scale = 0.25F};
  const TensorView none;
  PreparedOp ops[] = {
      {OpKind::kEmbedding, {}, {ids.View(), table.View()}, {x.View()}, {}},
      {OpKind::kLinear, {}, {x.View(), weight.View(), gamma.View()}, {y.View()}, {}},
      {OpKind::kLinearBackwardWeight, {}, {y.View(), x.View()}, {dweight.View()}, {}},
      {OpKind::kNorm,
       {.dropout = 0.1F},
       {x.View(), y.View(), gamma.View()},
       {dq.View(), none, none, rstd.View()},
       {}},
      {OpKind::kAttention, heads, {x.View(), x.View(), x.View()}, {y.View(), lse.View()}, {}},
      {OpKind::kAttentionBackward,
       heads,
       {x.View(), x.View(), x.View(), x.View(), y.View(), lse.View()},
       {dq.View(), dk.View(), dv.View()},
       {}},
      {OpKind::kActivation, {}, {x.View()}, {y.View()}, {}},
      {OpKind::kLinearLoss,
       {},
       {x.View(), weight.View(), none, ids.View()},
       {loss.View(), dq.View(), dweight.View()},
       {logits.View()}},
      {OpKind::kEmbeddingBackward, {}, {y.View(), ids.View()}, {table.View()}, {order.View()}},
      {OpKind::kGradNorm, {}, {dweight.View()}, {norm.View()}, {}},
      {OpKind::kUpdate,
       {},
       {norm.View(), dweight.View()},
       {weight.View(), m.View(), v.View(), none, scales.View(), other_scales.View()},
       {}},
  };
  const StepScalars step{.learning_rate = 1e-3F};
  const auto run = [&] {
    for (PreparedOp& op : ops) {
      op.attributes.batch = 2;
      op.attributes.sequence = 64;
      RunCpuOp({.kind = op.kind,
                .attributes = op.attributes,
                .inputs = op.inputs,
                .outputs = op.outputs,
                .scratch = op.scratch,
                .step = step});
    }
  };
  run();
  const int64_t before = allocations;
  run();
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace headroom::engine::cpu
