// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;

constexpr int64_t kVocabulary = 11;
constexpr int64_t kPositions = 9;
constexpr int64_t kOffset = 2;
constexpr float kScale = 3;

struct Case {
  int64_t batch, sequence, columns;
  DType dtype;
  bool positions;
  bool types;
  bool add;
};

struct Ids {
  std::vector<int64_t> tokens;
  std::vector<int64_t> types;
};

Doubles Forward(const Case& c, const Ids& ids, const Doubles& table, const Doubles& positions,
                const Doubles& types) {
  Doubles y;
  const auto columns = static_cast<size_t>(c.columns);
  for (size_t row = 0; row < ids.tokens.size(); ++row) {
    const size_t position = row % static_cast<size_t>(c.sequence) + kOffset;
    for (size_t i = 0; i < columns; ++i) {
      double value = table[static_cast<size_t>(ids.tokens[row]) * columns + i];
      value *= static_cast<double>(kScale);
      if (c.positions) value += positions[position * columns + i];
      if (c.types) value += types[static_cast<size_t>(ids.types[row]) * columns + i];
      y.push_back(value);
    }
  }
  return y;
}

void Check(const Case& c, std::mt19937& random) {
  SCOPED_TRACE(testing::Message() << c.batch << "x" << c.sequence << "x" << c.columns << " "
                                  << Name(c.dtype) << c.positions << c.types << c.add);
  Ids ids;
  for (int64_t i = 0; i < c.batch * c.sequence; ++i) {
    ids.tokens.push_back(static_cast<int64_t>(random() % kVocabulary) / 2);  // some never
    ids.types.push_back(static_cast<int64_t>(random() % 2));
  }
  const auto rows = [&](int64_t count) {
    return TestTensor::Random(Shape{count, c.columns}, c.dtype, random);
  };
  const int64_t n = c.batch * c.sequence;
  TestTensor tokens = TestTensor::Indices(ids.tokens, DType::kInt64);
  TestTensor type_ids = TestTensor::Indices(ids.types, DType::kInt32);
  TestTensor table = rows(kVocabulary);
  TestTensor positions = rows(kPositions);
  TestTensor types = rows(2);
  TestTensor y = rows(n);
  TestTensor dy = rows(n);
  TestTensor dtable = rows(kVocabulary);
  TestTensor dpositions = rows(kPositions);
  TestTensor dtypes = rows(2);
  TestTensor order = TestTensor::Zeros(Shape{n}, DType::kInt32);
  const Doubles none;
  const Doubles old_dtable = c.add ? dtable.Values() : none;
  const Doubles old_dpositions = c.add ? dpositions.Values() : none;
  const Doubles old_dtypes = c.add ? dtypes.Values() : none;
  const graph::OpAttributes attributes{
      .position_offset = kOffset, .embedding_scale = kScale, .accumulate = c.add};
  OpRun forward{.kind = OpKind::kEmbedding,
                .attributes = attributes,
                .inputs = {&tokens, &table, c.positions ? &positions : nullptr,
                           c.types ? &types : nullptr, c.types ? &type_ids : nullptr},
                .outputs = {&y},
                .batch = c.batch,
                .sequence = c.sequence};
  forward.Run();
  ExpectClose(y, Forward(c, ids, table.Values(), positions.Values(), types.Values()),
              {.terms = 3, .magnitude = 12});
  OpRun backward = forward;
  backward.kind = OpKind::kEmbeddingBackward;
  backward.inputs = {&dy, &tokens, c.types ? &type_ids : nullptr};
  backward.outputs = {&dtable, c.positions ? &dpositions : nullptr, c.types ? &dtypes : nullptr};
  backward.scratch = {&order};
  backward.Run();
  const Closeness closeness{.terms = static_cast<double>(n) + 4,
                            .magnitude = 4 * static_cast<double>(n)};
  const auto gradient = [&](auto forward_of, const TestTensor& at) {
    return NumericGradient(forward_of, at.Values(), dy.Values(), random, 40);
  };
  const auto of_table = [&](const Doubles& v) {
    return Forward(c, ids, v, positions.Values(), types.Values());
  };
  const auto of_positions = [&](const Doubles& v) {
    return Forward(c, ids, table.Values(), v, types.Values());
  };
  const auto of_types = [&](const Doubles& v) {
    return Forward(c, ids, table.Values(), positions.Values(), v);
  };
  ExpectSlopes(dtable, gradient(of_table, table), closeness, old_dtable);
  if (c.positions) {
    ExpectSlopes(dpositions, gradient(of_positions, positions), closeness, old_dpositions);
  }
  if (c.types) ExpectSlopes(dtypes, gradient(of_types, types), closeness, old_dtypes);
}

TEST(Embedding, EqualsReferenceAndCentralDifferences) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    Check({1, 1, 1, dtype, false, false, false}, random);
    Check({3, 7, 65, dtype, true, true, false}, random);
    Check({2, 5, 130, dtype, true, false, true}, random);
    Check({70, 3, 33, dtype, false, true, true}, random);
  }
}

TEST(Embedding, SumsARepeatedTokenInFloat32) {
  constexpr int64_t kRows = 4096;
  TestTensor tokens = TestTensor::Indices(std::vector<int64_t>(kRows, 1));
  TestTensor dy = TestTensor::Of(Shape{kRows, 1}, DType::kBFloat16, Doubles(kRows, 1.0));
  TestTensor dtable = TestTensor::Zeros(Shape{2, 1}, DType::kBFloat16);
  TestTensor order = TestTensor::Zeros(Shape{kRows}, DType::kInt32);
  OpRun run{.kind = OpKind::kEmbeddingBackward,
            .inputs = {&dy, &tokens},
            .outputs = {&dtable},
            .scratch = {&order}};
  run.Run();
  EXPECT_EQ(dtable.Values(), (Doubles{0, kRows}));  // in bfloat16, 256 + 1 is 256
}

}  // namespace
}  // namespace headroom::engine::cpu
