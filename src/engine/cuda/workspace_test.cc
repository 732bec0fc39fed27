// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/workspace.h"

#include <gtest/gtest.h>

namespace headroom::engine::cuda {
namespace {

using graph::Graph;
using graph::OpAttributes;
using graph::OpKind;
using graph::Role;
using graph::TensorId;

// Of the backward pass of attention of these sizes, in bfloat16.
int64_t BackwardBytes(const OpAttributes& attributes) {
  const int64_t rows = attributes.batch * attributes.sequence;
  const int64_t keys = attributes.key_sequence > 0 ? attributes.key_sequence : attributes.sequence;
  Graph graph;
  const auto add = [&](int64_t count, int64_t heads) {
    return graph.Add({.name = "x",
                      .dtype = DType::kBFloat16,
                      .shape = Shape{count, heads * attributes.head_dim}});
  };
  const TensorId q = add(rows, attributes.heads);
  const TensorId k = add(attributes.batch * keys, attributes.kv_heads);
  const TensorId lse = graph.Add(
      {.name = "lse", .shape = Shape{attributes.batch, attributes.heads, attributes.sequence}});
  graph.Append({.kind = OpKind::kAttentionBackward,
                .inputs = {q, q, k, k, q, lse},
                .outputs = {q, k, k},
                .attributes = attributes});
  AddWorkspaces(graph);
  return SizeOf(graph.tensor(graph.ops()[0].scratch.back())).count();
}

// What the plans of cuDNN 9.19 for an H200 said.
TEST(Workspace, HoldsWhatCudnnAsksFor) {
  struct Asked {
    OpAttributes attributes;
    int64_t bytes;
  };
  const Asked cases[] = {
      {{.batch = 4, .sequence = 512, .heads = 16, .kv_heads = 16, .head_dim = 64}, 33'685'760},
      {{.batch = 4, .sequence = 512, .heads = 16, .kv_heads = 4, .head_dim = 64}, 42'074'368},
      {{.batch = 4, .sequence = 100, .heads = 16, .kv_heads = 16, .head_dim = 64}, 2'123'008},
      {{.batch = 4,
        .sequence = 72,
        .key_sequence = 100,
        .heads = 16,
        .kv_heads = 16,
        .head_dim = 128},
       2'115'840},
      {{.batch = 8, .sequence = 1024, .heads = 12, .kv_heads = 12, .head_dim = 64}, 201'720'064},
  };
  for (const Asked& asked : cases) {
    const int64_t bytes = BackwardBytes(asked.attributes);
    EXPECT_GE(bytes, asked.bytes);
    EXPECT_LE(bytes, asked.bytes + (16 << 10));
  }
}

TEST(Workspace, GivesCudnnEqualPartsOfTheBatch) {
  EXPECT_EQ(CudnnSequences(32, 16, 512, 512), 32);    // 256 MiB
  EXPECT_EQ(CudnnSequences(32, 12, 1024, 1024), 8);   // 10 have room
  EXPECT_EQ(CudnnSequences(7, 12, 2048, 2048), 1);    // 2 have room, but 7 is prime
  EXPECT_EQ(CudnnSequences(2, 64, 16384, 16384), 1);  // one is larger than the room
}

}  // namespace
}  // namespace headroom::engine::cuda
