// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/cpu/dropout.h"
#include "engine/cpu/op_harness.h"

namespace headroom::engine::cpu {
namespace {

using graph::OpKind;

struct Case {
  int64_t batch = 1;
  int64_t queries = 1;
  int64_t keys = 0;  // 0: as many as queries
  int heads = 1;
  int kv_heads = 1;
  int head_dim = 8;
  DType dtype = DType::kFloat32;
  bool causal = false;
  std::vector<int64_t> lengths = {};
  bool alibi = false;
  float dropout = 0;
  bool add = false;
  bool packed = false;  // q, k and v in one projection

  int64_t key_count() const { return keys == 0 ? queries : keys; }
};

// Attention as its definition has it, with the whole matrix of scores.
class Reference {
 public:
  Reference(const Case& c, const DropoutMask& mask, const Doubles& slopes)
      : c_(c), mask_(mask), slopes_(slopes) {}

  Doubles operator()(const Doubles& q, const Doubles& k, const Doubles& v) const {
    Doubles o(q.size());
    for (int64_t b = 0; b < c_.batch; ++b) {
      for (int64_t h = 0; h < c_.heads; ++h) {
        for (int64_t i = 0; i < c_.queries; ++i) Row(b, h, i, q, k, v, o);
      }
    }
    return o;
  }

 private:
  bool Sees(int64_t b, int64_t i, int64_t j) const {
    const int64_t length = c_.lengths.empty() ? c_.key_count() : c_.lengths[static_cast<size_t>(b)];
    return j < length && (!c_.causal || j <= i + c_.key_count() - c_.queries);
  }
  size_t At(int64_t b, int64_t s, int64_t count, int64_t h, int64_t heads) const {
    return static_cast<size_t>(((b * count + s) * heads + h) * c_.head_dim);
  }

  void Row(int64_t b, int64_t h, int64_t i, const Doubles& q, const Doubles& k, const Doubles& v,
           Doubles& o) const {
    const int64_t kv_head = h / (c_.heads / c_.kv_heads);
    const auto dim = static_cast<size_t>(c_.head_dim);
    const double* query = q.data() + At(b, i, c_.queries, h, c_.heads);
    Doubles p(static_cast<size_t>(c_.key_count()));
    double total = 0;
    for (int64_t j = 0; j < c_.key_count(); ++j) {
      if (!Sees(b, i, j)) continue;
      const double* key = k.data() + At(b, j, c_.key_count(), kv_head, c_.kv_heads);
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += query[d] * key[d];
      score /= std::sqrt(static_cast<double>(c_.head_dim));
      if (c_.alibi) score += slopes_[static_cast<size_t>(h)] * static_cast<double>(j);
      p[static_cast<size_t>(j)] = std::exp(score);
      total += std::exp(score);
    }
    if (total == 0) return;
    double* out = o.data() + At(b, i, c_.queries, h, c_.heads);
    for (int64_t j = 0; j < c_.key_count(); ++j) {
      const auto element =
          static_cast<uint64_t>(((b * c_.heads + h) * c_.queries + i) * c_.key_count() + j);
      const double weight =
          p[static_cast<size_t>(j)] / total * static_cast<double>(mask_.Factor(element));
      const double* value = v.data() + At(b, j, c_.key_count(), kv_head, c_.kv_heads);
      for (size_t d = 0; d < dim; ++d) out[d] += weight * value[d];
    }
  }

  Case c_;
  DropoutMask mask_;
  Doubles slopes_;
};

void Check(const Case& c, std::mt19937& random, size_t samples = 24) {
  SCOPED_TRACE(testing::Message() << "batch " << c.batch << " queries " << c.queries << " keys "
                                  << c.key_count() << " heads " << c.heads << "/" << c.kv_heads
                                  << "x" << c.head_dim << " " << Name(c.dtype) << " causal "
                                  << c.causal << " alibi " << c.alibi << " dropout " << c.dropout
                                  << " add " << c.add);
  const Shape query_shape{c.batch * c.queries, int64_t{c.heads} * c.head_dim};
  const Shape key_shape{c.batch * c.key_count(), int64_t{c.kv_heads} * c.head_dim};
  const auto make = [&](const Shape& shape) {
    TestTensor tensor = TestTensor::Random(shape, c.dtype, random);
    return c.packed ? tensor.Spread(3 * shape[-1]) : tensor;
  };
  TestTensor q = make(query_shape);
  TestTensor k = make(key_shape);
  TestTensor v = make(key_shape);
  TestTensor o = TestTensor::Zeros(query_shape, c.dtype);
  TestTensor lse = TestTensor::Zeros(Shape{c.batch, c.heads, c.queries});
  TestTensor lengths =
      TestTensor::Indices(c.lengths.empty() ? std::vector<int64_t>{0} : c.lengths, DType::kInt32);
  Doubles slope_values;
  for (int h = 0; h < c.heads; ++h) slope_values.push_back(std::pow(2.0, -2 - h));
  TestTensor slopes = TestTensor::Of(Shape{c.heads}, DType::kFloat32, slope_values);
  TestTensor* some_lengths = c.lengths.empty() ? nullptr : &lengths;
  TestTensor* some_slopes = c.alibi ? &slopes : nullptr;
  const graph::OpAttributes attributes{
      .dropout = c.dropout,
      .stream = 2,
      .heads = c.heads,
      .kv_heads = c.kv_heads,
      .head_dim = c.head_dim,
      .causal = c.causal,
      .scale = 1 / std::sqrt(static_cast<float>(c.head_dim)),
  };
  const StepScalars step{.seed = 77, .step = 3, .micro_step = 1};
  OpRun forward{.kind = OpKind::kAttention,
                .attributes = attributes,
                .inputs = {&q, &k, &v, some_lengths, some_slopes},
                .outputs = {&o, &lse},
                .step = step,
                .batch = c.batch,
                .sequence = c.queries,
                .key_sequence = c.key_count()};
  forward.Run();
  const OpCall call{.kind = OpKind::kAttention,
                    .attributes = attributes,
                    .inputs = {},
                    .outputs = {},
                    .scratch = {},
                    .step = step};
  const Reference reference(c, MaskOf(call), slope_values);
  const Doubles qs = q.Values();
  const Doubles ks = k.Values();
  const Doubles vs = v.Values();
  // Scores of float32 sums of head_dim terms enter the exponential; then keys are summed.
  const double terms = 2.0 * c.head_dim + static_cast<double>(c.key_count()) + 64;
  ExpectClose(o, reference(qs, ks, vs), {.terms = terms, .magnitude = 6});

  TestTensor dout = TestTensor::Random(query_shape, c.dtype, random);
  TestTensor dq = make(query_shape);
  TestTensor dk = make(key_shape);
  TestTensor dv = make(key_shape);
  const Doubles none;
  const Doubles old_dq = c.add ? dq.Values() : none;
  const Doubles old_dk = c.add ? dk.Values() : none;
  const Doubles old_dv = c.add ? dv.Values() : none;
  OpRun backward = forward;
  backward.kind = OpKind::kAttentionBackward;
  backward.attributes.accumulate = c.add;
  backward.inputs = {&dout, &q, &k, &v, &o, &lse, some_lengths, some_slopes};
  backward.outputs = {&dq, &dk, &dv};
  backward.Run();
  const Doubles d = dout.Values();
  // `o` was stored, and its rounding goes into every score's gradient.
  const Closeness closeness{.terms = terms + static_cast<double>(c.queries),
                            .magnitude = 12,
                            .stored = c.dtype == DType::kFloat32 ? 0.0 : 1.0};
  const auto of_q = [&](const Doubles& x) { return reference(x, ks, vs); };
  const auto of_k = [&](const Doubles& x) { return reference(qs, x, vs); };
  const auto of_v = [&](const Doubles& x) { return reference(qs, ks, x); };
  ExpectSlopes(dq, NumericGradient(of_q, qs, d, random, samples), closeness, old_dq);
  ExpectSlopes(dk, NumericGradient(of_k, ks, d, random, samples), closeness, old_dk);
  ExpectSlopes(dv, NumericGradient(of_v, vs, d, random, samples), closeness, old_dv);
}

TEST(Attention, EqualsReferenceAndCentralDifferencesInEveryType) {
  std::mt19937 random(1);
  for (const DType dtype : kStorageTypes) {
    Check({.dtype = dtype}, random);
    Check({.batch = 2,
           .queries = 7,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 3,
           .dtype = dtype,
           .causal = true,
           .packed = true},
          random);
    Check({.batch = 2,
           .queries = 13,
           .heads = 2,
           .kv_heads = 2,
           .head_dim = 17,
           .dtype = dtype,
           .lengths = {5, 13},
           .dropout = 0.25F,
           .add = true},
          random);
    Check({.batch = 1,
           .queries = 65,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 16,
           .dtype = dtype,
           .causal = true,
           .alibi = true},
          random, 8);
  }
}

TEST(Attention, CrossesTilesOfQueriesAndKeys) {
  std::mt19937 random(2);
  Check({.queries = 130, .heads = 1, .head_dim = 8, .causal = true}, random, 6);
  Check({.batch = 2,
         .queries = 70,
         .keys = 150,
         .heads = 2,
         .kv_heads = 1,
         .head_dim = 8,
         .lengths = {150, 129},
         .dropout = 0.1F,
         .packed = true},
        random, 6);
  Check({.queries = 140,
         .heads = 2,
         .kv_heads = 2,
         .head_dim = 7,
         .causal = true,
         .alibi = true,
         .dropout = 0.1F,
         .add = true},
        random, 6);
}

// So many that each thread takes all tiles of a head's keys.
TEST(Attention, OfManyHeadsCrossesTilesToo) {
  std::mt19937 random(5);
  Check({.batch = 2,
         .queries = 135,
         .heads = 32,
         .kv_heads = 16,
         .head_dim = 4,
         .causal = true,
         .lengths = {135, 60},
         .dropout = 0.1F,
         .packed = true},
        random, 6);
  Check({.batch = 2,
         .queries = 5,
         .keys = 140,
         .heads = 16,
         .kv_heads = 16,
         .head_dim = 4,
         .lengths = {140, 0},
         .add = true},
        random, 6);
}

TEST(Attention, LetsTheLastQueryOfFewerSeeAllKeys) {
  std::mt19937 random(3);
  Check({.queries = 3, .keys = 9, .heads = 2, .kv_heads = 2, .causal = true}, random);
}

TEST(Attention, TakesHeadsOf256) {
  std::mt19937 random(4);
  Check({.queries = 5, .head_dim = 256}, random, 8);
}

TEST(Attention, YieldsZeroWhereNoKeyIsSeen) {
  std::mt19937 random(5);
  Check({.batch = 2, .queries = 4, .heads = 1, .lengths = {0, 4}}, random);
  Check({.queries = 5, .keys = 3, .causal = true}, random);
}

TEST(Attention, LeavesWhatIsNotANumberToBeSeen) {
  TestTensor q = TestTensor::Of(Shape{1, 4}, DType::kFloat32, {1, NAN, 1, 1});
  TestTensor k = TestTensor::Of(Shape{1, 4}, DType::kFloat32, {1, 1, 1, 1});
  TestTensor o = TestTensor::Zeros(Shape{1, 4});
  OpRun run{.kind = OpKind::kAttention,
            .attributes = {.heads = 1, .kv_heads = 1, .head_dim = 4, .scale = 1},
            .inputs = {&q, &k, &k},
            .outputs = {&o},
            .batch = 1,
            .sequence = 1};
  run.Run();
  for (const double value : o.Values()) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace headroom::engine::cpu
