// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/deberta_v2/modeling_deberta_v2.py.
#include "predict/models/deberta_attention.h"

#include "model/parameter_builders.h"

namespace headroom::predict {
namespace {

// Ops on positions and masks: outside autograd.
Tensor IndexOp(const char* name, std::initializer_list<Tensor> inputs, DType dtype) {
  return Elementwise(name, std::span(inputs.begin(), inputs.size()), dtype);
}

class PositionScope {
 public:
  explicit PositionScope(Runtime& runtime)
      : kind_(runtime.kind, Kind::kPosition), component_(runtime.component, Component::kInputs) {}

 private:
  Scoped<Kind> kind_;
  Scoped<Component> component_;
};

int64_t MaxRelativePositions(const ModelConfig& config) {
  const int64_t given = config.Int("max_relative_positions");
  return given < 1 ? config.Int("max_position_embeddings") : given;
}

// make_log_bucket_position as TorchScript's interpreter runs it, op by op.
Tensor LogBuckets(const Tensor& relative) {
  Runtime& runtime = relative.runtime();
  Tensor sign = IndexOp("aten::sign", {relative}, DType::kInt64);
  Tensor distance;
  {
    Tensor near;
    {
      const Tensor below = CompareScalar(relative);
      const Tensor above = CompareScalar(relative);
      near = IndexOp("aten::bitwise_and", {below, above}, DType::kBool);
    }
    const Tensor middle = Empty(runtime, {}, DType::kInt64);
    const Tensor absolute = IndexOp("aten::abs", {relative}, DType::kInt64);
    distance = IndexOp("aten::where", {near, middle, absolute}, DType::kInt64);
  }
  Tensor bucket = IndexOp("aten::div", {distance}, DType::kFloat32);
  for (const char* op : {"aten::log", "aten::div", "aten::mul", "aten::ceil", "aten::add"}) {
    bucket = IndexOp(op, {bucket}, DType::kFloat32);
  }
  const Tensor near = CompareScalar(distance);
  distance = Tensor();
  const Tensor linear = ToCopy(relative, DType::kFloat32);
  const Tensor signed_bucket = IndexOp("aten::mul", {bucket, sign}, DType::kFloat32);
  bucket = Tensor();
  sign = Tensor();
  return IndexOp("aten::where", {near, linear, signed_bucket}, DType::kFloat32);
}

// The same from its second call on: TorchScript's profiling executor has fused all but the sign and
// the division by a tensor into two kernels (PyTorch 2.11.0, read off a recorded trace).
Tensor FusedLogBuckets(const Tensor& relative) {
  Runtime& runtime = relative.runtime();
  const Tensor sign = IndexOp("aten::sign", {relative}, DType::kInt64);
  Tensor logarithm;
  Tensor distance;
  {
    const Tensor middle = Empty(runtime, {}, DType::kInt64);
    logarithm = IndexOp("aten::log", {relative}, DType::kFloat32);
    distance = IndexOp("aten::where", {relative}, DType::kInt64);
  }
  const Tensor quotient = IndexOp("aten::div", {logarithm}, DType::kFloat32);
  logarithm = Tensor();
  return IndexOp("aten::where", {quotient}, DType::kFloat32);
}

// clamp(±relative_pos + span, 0, 2 * span - 1)
Tensor Buckets(const Tensor& positions, bool negated) {
  const PositionScope scope(positions.runtime());
  Tensor shifted = positions;
  if (negated) shifted = IndexOp("aten::neg", {shifted}, DType::kInt64);
  shifted = IndexOp("aten::add", {shifted}, DType::kInt64);
  return IndexOp("aten::clamp", {shifted}, DType::kInt64);
}

Tensor OverHeads(const Tensor& buckets, int64_t count) { return Expand(buckets, {count, -1, -1}); }

}  // namespace

RelativeOptions ReadRelativeOptions(const ModelConfig& config) {
  RelativeOptions options;
  options.enabled = config.Bool("relative_attention");
  options.content_to_position = HasPositionTerm(config, "c2p");
  options.position_to_content = HasPositionTerm(config, "p2c");
  options.share_keys = config.Bool("share_att_key");
  options.normed = config.String("norm_rel_ebd").find("layer_norm") != std::string::npos;
  const int64_t buckets = config.Int("position_buckets");
  options.bucketed = buckets > 0;
  options.span = buckets > 0 ? buckets : MaxRelativePositions(config);
  return options;
}

Tensor RelativePositions(Runtime& runtime, int64_t sequence, bool bucketed, bool first) {
  const PositionScope scope(runtime);
  const Tensor queries = Arange(runtime, sequence);
  const Tensor keys = Arange(runtime, sequence);
  Tensor relative =
      IndexOp("aten::sub", {Unsqueeze(queries, 1), Unsqueeze(keys, 0)}, DType::kInt64);
  if (bucketed) relative = first ? LogBuckets(relative) : FusedLogBuckets(relative);
  relative = To(relative, DType::kInt64);
  return Unsqueeze(relative, 0);
}

DisentangledAttention::DisentangledAttention(const Scope& scope, const ModelConfig& config,
                                             const RelativeOptions& options)
    : id_(scope.id()),
      query_(scope / "query_proj"),
      key_(scope / "key_proj"),
      value_(scope / "value_proj"),
      heads_(config.Int("num_attention_heads")),
      options_(options),
      dropout_(config.Float("attention_probs_dropout_prob")),
      position_dropout_(config.Float("hidden_dropout_prob")) {
  if ((scope / "pos_key_proj").Find("weight").defined()) {
    position_key_.emplace(scope / "pos_key_proj");
  }
  if ((scope / "pos_query_proj").Find("weight").defined()) {
    position_query_.emplace(scope / "pos_query_proj");
  }
}

Tensor DisentangledAttention::operator()(const Tensor& hidden, const Tensor& attention_mask,
                                         const Relative& relative) const {
  Runtime& runtime = hidden.runtime();
  const InModule in(runtime, id_);
  const Scoped kind(runtime.kind, Kind::kAttention);
  const Tensor q = ForScores(query_(hidden));
  const Tensor k = ForScores(key_(hidden));
  const Tensor v = ForScores(value_(hidden));
  const Scoped scores_kind(runtime.kind, Kind::kAttentionScores);
  Tensor scores = Bmm(q, DivScalar(Transpose(k, -1, -2)));
  Tensor position_embeddings;
  Tensor bias;
  if (options_.enabled) {
    position_embeddings = Dropout(relative.embeddings, position_dropout_);
    bias = PositionBias(q, k, relative.positions, position_embeddings);
    scores = bias.defined() ? Add(scores, bias) : AddScalar(scores);
  }
  scores = View(scores, {-1, heads_, scores.size(-2), scores.size(-1)});
  const Tensor mask = To(attention_mask, DType::kBool);
  scores = MaskedFill(scores, IndexOp("aten::bitwise_not", {mask}, DType::kBool));
  Tensor probabilities = Softmax(scores);
  probabilities = Dropout(probabilities, dropout_);
  Tensor context =
      Bmm(View(probabilities, {-1, probabilities.size(-2), probabilities.size(-1)}), v);
  context = View(context, {-1, heads_, context.size(-2), context.size(-1)});
  context = Contiguous(Permute(context, {0, 2, 1, 3}));
  return View(context, {context.size(0), context.size(1), -1});
}

// transpose_for_scores: [batch, sequence, hidden] to [batch * heads, sequence, head_dim].
Tensor DisentangledAttention::ForScores(const Tensor& x) const {
  const Tensor apart = View(x, {x.size(0), x.size(1), heads_, -1});
  return View(Contiguous(Permute(apart, {0, 2, 1, 3})), {-1, x.size(1), x.size(2) / heads_});
}

Tensor DisentangledAttention::OfPositions(const Linear& projection, const Tensor& embeddings,
                                          int64_t batch) const {
  const Tensor of_one = ForScores(projection(embeddings));
  return RepeatFirst(of_one, batch);
}

// disentangled_attention_bias; undefined where the config names neither term.
Tensor DisentangledAttention::PositionBias(const Tensor& q, const Tensor& k,
                                           const Tensor& positions, const Tensor& dropped) const {
  const int64_t batch = q.size(0) / heads_;
  // rel_embeddings[0 : 2 * span] is all of them, and so the tensor itself.
  const Tensor embeddings = Unsqueeze(dropped, 0);
  Tensor position_q;
  Tensor position_k;
  if (options_.share_keys) {
    position_q = OfPositions(query_, embeddings, batch);
    position_k = OfPositions(key_, embeddings, batch);
  } else {
    if (position_key_) position_k = OfPositions(*position_key_, embeddings, batch);
    if (position_query_) position_q = OfPositions(*position_query_, embeddings, batch);
  }
  Tensor score;
  Tensor to_position;
  Tensor to_content;
  Tensor from_query;
  Tensor from_key;
  if (options_.content_to_position) {
    to_position = Bmm(q, Transpose(position_k, -1, -2));
    from_query = Buckets(positions, false);
    to_position = Gather(to_position, OverHeads(from_query, q.size(0)));
    // score = 0, so that the first term is added to a number
    score = AddScalar(DivScalar(to_position));
  }
  if (options_.position_to_content) {
    from_key = Buckets(positions, true);
    to_content = Bmm(k, Transpose(position_q, -1, -2));
    to_content = Transpose(Gather(to_content, OverHeads(from_key, k.size(0))), -1, -2);
    const Tensor scaled = DivScalar(to_content);
    score = score.defined() ? AddInPlace(score, scaled) : AddScalar(scaled);
  }
  return score;
}

}  // namespace headroom::predict
