// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/score_groups.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace headroom::engine::cuda {
namespace {

constexpr AttentionSize kBertLarge{
    .batch = 4, .queries = 512, .keys = 512, .heads = 16, .kv_heads = 16, .head_dim = 64};

TEST(ScoreGroups, HoldAsManySequencesAsTheCacheDoes) {
  const auto forward = GroupScores(kBertLarge, DType::kFloat32, AttentionPass::kForward);
  ASSERT_TRUE(forward);
  EXPECT_EQ(forward->sequences, 2);
  EXPECT_EQ(forward->matrix_bytes, 32 << 20);
  const auto backward = GroupScores(kBertLarge, DType::kFloat32, AttentionPass::kBackward);
  ASSERT_TRUE(backward);
  EXPECT_EQ(backward->sequences, 1);
  EXPECT_EQ(backward->kv_heads, 16);
  EXPECT_EQ(backward->matrices * backward->matrix_bytes, 32 << 20);
  EXPECT_EQ(backward->sum_bytes, 0);
}

TEST(ScoreGroups, LeaveSmallAndOddHeadsToThePlainKernels) {
  AttentionSize size = kBertLarge;
  size.queries = size.keys = 12;
  EXPECT_FALSE(GroupScores(size, DType::kFloat32, AttentionPass::kForward));
  size = kBertLarge;
  size.head_dim = 6;
  EXPECT_FALSE(GroupScores(size, DType::kFloat32, AttentionPass::kForward));
  size.head_dim = 4;
  EXPECT_TRUE(GroupScores(size, DType::kFloat32, AttentionPass::kForward));
  EXPECT_FALSE(GroupScores(size, DType::kBFloat16, AttentionPass::kForward));
}

TEST(ScoreGroups, SumIn32BitsWhatSeveralProductsAddTo) {
  AttentionSize size = kBertLarge;
  size.kv_heads = 4;
  const auto grouped = GroupScores(size, DType::kBFloat16, AttentionPass::kBackward);
  ASSERT_TRUE(grouped);
  EXPECT_EQ(grouped->sum_bytes, 4 * grouped->sequences * grouped->kv_heads * 512 * 64);
  EXPECT_EQ(GroupScores(size, DType::kFloat32, AttentionPass::kBackward)->sum_bytes, 0);
}

// Each query of each head lies in one piece, which has all keys that it sees.
void ExpectCovered(const AttentionSize& size, AttentionPass pass) {
  const auto groups = GroupScores(size, DType::kFloat32, pass);
  ASSERT_TRUE(groups);
  std::map<std::tuple<int64_t, int64_t, int64_t>, int> seen;
  int64_t open_keys = 0;
  for (const ScorePiece& piece : PiecesOf(size, *groups)) {
    const int64_t floats =
        piece.sequences * piece.kv_heads * size.group() * piece.queries * groups->row;
    EXPECT_LE(4 * floats, groups->matrix_bytes);
    EXPECT_LE(piece.keys, groups->row);
    if (piece.first) {
      EXPECT_EQ(piece.keys, size.keys);
      EXPECT_EQ(open_keys, 0);
      open_keys = 1;
    }
    EXPECT_EQ(open_keys, 1);
    if (piece.last) open_keys = 0;
    for (int64_t b = piece.sequence; b < piece.sequence + piece.sequences; ++b) {
      for (int64_t h = piece.kv_head; h < piece.kv_head + piece.kv_heads; ++h) {
        for (int64_t q = piece.query; q < piece.query + piece.queries; ++q) {
          ++seen[{b, h, q}];
          const int64_t visible = size.causal ? q + 1 + size.keys - size.queries : size.keys;
          EXPECT_LE(visible, piece.keys);
        }
      }
    }
  }
  EXPECT_EQ(open_keys, 0);
  EXPECT_EQ(static_cast<int64_t>(seen.size()), size.batch * size.kv_heads * size.queries);
  for (const auto& [place, count] : seen) EXPECT_EQ(count, 1);
}

TEST(ScoreGroups, CoverEveryQueryOnce) {
  for (const AttentionPass pass : {AttentionPass::kForward, AttentionPass::kBackward}) {
    ExpectCovered(kBertLarge, pass);
    AttentionSize size = kBertLarge;
    size.batch = 5;
    size.queries = size.keys = 130;
    ExpectCovered(size, pass);
    size.queries = size.keys = 1000;
    size.causal = true;
    ExpectCovered(size, pass);
    size.kv_heads = 2;
    size.batch = 2;
    ExpectCovered(size, pass);
    size.queries = 3001;
    size.keys = 2500;
    ExpectCovered(size, pass);
  }
}

}  // namespace
}  // namespace headroom::engine::cuda
