// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: models/modernbert/modeling_modernbert.py, masking_utils.py
// (create_bidirectional_sliding_window_mask), loss/loss_utils.py (ForMaskedLMLoss).
#include <map>
#include <string>

#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

constexpr std::string_view kSliding = "sliding_attention";

Tensor IndexOp(const char* name, std::initializer_list<Tensor> inputs, DType dtype) {
  return Elementwise(name, std::span(inputs.begin(), inputs.size()), dtype);
}

// sliding_window_bidirectional_mask_function: True & (|query - key| <= window) & (query >= 0).
Tensor WindowMask(const Tensor& query, const Tensor& key) {
  Tensor mask = Empty(query.runtime(), {}, DType::kBool);
  {
    Tensor near = IndexOp("aten::sub", {query, key}, DType::kInt64);
    near = IndexOp("aten::abs", {near}, DType::kInt64);
    near = CompareScalar(near);
    mask = IndexOp("aten::bitwise_and", {mask, near}, DType::kBool);
  }
  const Tensor valid = CompareScalar(query);
  mask = IndexOp("aten::bitwise_and", {mask, valid}, DType::kBool);
  return mask;
}

// torch.arange(count) + 0
Tensor ShiftedRange(Runtime& runtime, int64_t count) {
  return IndexOp("aten::add", {Arange(runtime, count)}, DType::kInt64);
}

// sdpa_mask, once the mask cannot be left out: boolean, seen by every row of the batch.
Tensor BooleanWindowMask(Runtime& runtime, int64_t batch, int64_t sequence,
                         const Tensor& attention_mask) {
  const Tensor batch_range = Arange(runtime, batch);
  const Tensor head_range = Arange(runtime, 1);
  const Tensor query_range = ShiftedRange(runtime, sequence);
  const Tensor key_range = ShiftedRange(runtime, sequence);
  const Tensor query = View(query_range, {1, 1, sequence, 1});
  const Tensor key = View(key_range, {1, 1, 1, sequence});
  Tensor mask;
  if (!attention_mask.defined()) {
    mask = WindowMask(query, key);
  } else {
    // True & window & padding_mask[batch, key]
    mask = Empty(runtime, {}, DType::kBool);
    {
      const Tensor window = WindowMask(query, key);
      mask = IndexOp("aten::bitwise_and", {mask, window}, DType::kBool);
    }
    const Tensor padding = Empty(runtime, {batch, 1, 1, sequence}, DType::kBool);
    mask = IndexOp("aten::bitwise_and", {mask, padding}, DType::kBool);
  }
  return Expand(mask, {batch, -1, sequence, sequence});
}

// create_bidirectional_sliding_window_mask: undefined where the window is wider than the sequence.
Tensor CreateWindowMask(AttnImplementation attn, const Tensor& embeddings,
                        const Tensor& attention_mask, int64_t window) {
  Runtime& runtime = embeddings.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const Scoped component(runtime.component, Component::kInputs);
  const int64_t sequence = embeddings.size(1);
  // Casts the padding mask and looks whether a token is masked, as the mask of full attention does.
  const Tensor none = CreateBidirectionalMask(attn, embeddings, attention_mask);
  if (attn == AttnImplementation::kFlashAttention2 || sequence < window) return none;
  const Tensor mask = BooleanWindowMask(runtime, embeddings.size(0), sequence, attention_mask);
  if (attn != AttnImplementation::kEager) return mask;
  // eager_mask: where(mask, 0, lowest) in the dtype of the embeddings.
  const Tensor zero = Empty(runtime, {}, embeddings.dtype());
  const Tensor lowest = Empty(runtime, {}, embeddings.dtype());
  return Empty(runtime, mask.shape(), embeddings.dtype());
}

struct Rotary {
  Tensor cos;
  Tensor sin;
};

// One of apply_rotary_pos_emb's two sums, in fp32.
Tensor Rotated(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor straight;
  {
    const Tensor wide = To(x, DType::kFloat32);
    straight = Mul(wide, cos);
  }
  Tensor turned;
  {
    const Tensor wide = To(x, DType::kFloat32);
    turned = RotateHalf(wide);
  }
  turned = Mul(turned, sin);
  return Add(straight, turned);
}

// apply_rotary_pos_emb, which casts both back at the end.
std::pair<Tensor, Tensor> RotateInFloat(const Tensor& q, const Tensor& k, const Rotary& rotary) {
  const Tensor cos = Unsqueeze(rotary.cos, 1);
  const Tensor sin = Unsqueeze(rotary.sin, 1);
  const Tensor rotated_q = Rotated(q, cos, sin);
  const Tensor rotated_k = Rotated(k, cos, sin);
  const Tensor cast_q = To(rotated_q, q.dtype());
  return {cast_q, To(rotated_k, q.dtype())};
}

class Attention {
 public:
  Attention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        qkv_(scope / "Wqkv"),
        out_(scope / "Wo"),
        heads_(arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        dropout_(arguments.config.Float("attention_dropout")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask, const Rotary& rotary) const {
    Runtime& runtime = hidden.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kAttention);
    const int64_t batch = hidden.size(0);
    const int64_t sequence = hidden.size(1);
    Tensor qkv = qkv_(hidden);
    qkv = View(qkv, {batch, sequence, 3, heads_, -1});
    std::vector<Tensor> parts = Unbind(qkv, -3);
    Tensor q = Transpose(parts[0], 1, 2);
    Tensor k = Transpose(parts[1], 1, 2);
    const Tensor v = Transpose(parts[2], 1, 2);
    parts.clear();
    std::tie(q, k) = RotateInFloat(q, k, rotary);

    AttentionOutput output;
    if (eager_) {
      output = EagerAttentionForward(q, k, v, mask, {.dropout = dropout_});
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, {.dropout = dropout_});
    }
    output.states = Contiguous(Reshape(output.states, {batch, sequence, -1}));
    const Tensor projected = out_(output.states);
    output.states = Dropout(projected, dropout_);
    return output;
  }

 private:
  ModuleId id_;
  Linear qkv_;
  Linear out_;
  int64_t heads_;
  bool eager_;
  double dropout_;
};

// ModernBertMLP: Wo(dropout(activation(input) * gate)), input and gate being Wi's halves.
class GatedMlp {
 public:
  GatedMlp(const Scope& scope, const ModelConfig& config, Activation activation)
      : id_(scope.id()),
        in_(scope / "Wi"),
        out_(scope / "Wo"),
        activation_(activation),
        dropout_(config.Float("mlp_dropout")),
        inner_(config.Int("intermediate_size")) {}

  Tensor operator()(const Tensor& hidden) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kMlp);
    std::vector<Tensor> halves;
    {
      const Tensor both = in_(hidden);
      halves = Split(both, inner_, -1);
    }
    Tensor inner;
    {
      const Tensor activated = activation_(halves[0]);
      inner = Mul(activated, halves[1]);
    }
    inner = Dropout(inner, dropout_);
    return out_(inner);
  }

 private:
  ModuleId id_;
  Linear in_;
  Linear out_;
  Activation activation_;
  double dropout_;
  int64_t inner_;
};

class EncoderLayer {
 public:
  EncoderLayer(const Scope& scope, const ModelArguments& arguments, Activation activation,
               std::string_view attention_type)
      : id_(scope.id()),
        attention_type_(attention_type),
        attention_(scope / "attn", arguments),
        mlp_norm_(scope / "mlp_norm"),
        mlp_(scope / "mlp", arguments.config, activation) {
    // The first layer's norm is the identity: the embeddings are normed already.
    if ((scope / "attn_norm").Find("weight").defined())
      attention_norm_.emplace(scope / "attn_norm");
  }

  const std::string& attention_type() const { return attention_type_; }

  Tensor operator()(const Tensor& input, const Tensor& mask, const Rotary& rotary) const {
    Runtime& runtime = input.runtime();
    const InModule in(runtime, id_);
    AttentionOutput attention;
    {
      const Tensor normed = attention_norm_ ? (*attention_norm_)(input) : input;
      attention = attention_(normed, mask, rotary);
    }
    Tensor hidden = Residual(input, attention.states);
    Tensor mlp;
    {
      const Tensor normed = mlp_norm_(hidden);
      mlp = mlp_(normed);
    }
    hidden = Residual(hidden, mlp);
    return hidden;
  }

 private:
  static Tensor Residual(const Tensor& hidden, const Tensor& update) {
    const Scoped kind(hidden.runtime().kind, Kind::kResidual);
    return Add(hidden, update);
  }

  ModuleId id_;
  std::string attention_type_;
  std::optional<LayerNorm> attention_norm_;
  Attention attention_;
  LayerNorm mlp_norm_;
  GatedMlp mlp_;
};

// ModernBertPredictionHead: norm(activation(dense)).
class PredictionHead {
 public:
  PredictionHead(const Scope& scope, Activation activation)
      : id_(scope.id()), dense_(scope / "dense"), norm_(scope / "norm"), activation_(activation) {}

  Tensor operator()(const Tensor& hidden) const {
    const InModule in(hidden.runtime(), id_);
    Tensor x = dense_(hidden);
    x = activation_(x);
    return norm_(x);
  }

 private:
  ModuleId id_;
  Linear dense_;
  LayerNorm norm_;
  Activation activation_;
};

class ModernBert final : public Model {
 public:
  ModernBert(const ModelArguments& arguments, Activation activation, Activation head_activation)
      : task_(arguments.recipe.task),
        attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        window_(arguments.config.Int("sliding_window")),
        words_(Scope(arguments.weights) / "model" / "embeddings" / "tok_embeddings"),
        embedding_norm_(Scope(arguments.weights) / "model" / "embeddings" / "norm"),
        embedding_dropout_(arguments.config.Float("embedding_dropout")),
        final_norm_(Scope(arguments.weights) / "model" / "final_norm"),
        mean_pooling_(arguments.config.String("classifier_pooling") == "mean"),
        head_(Scope(arguments.weights) / "head", head_activation),
        classifier_dropout_(arguments.config.Float("classifier_dropout")) {
    const Scope root(arguments.weights);
    BuildLayers(root / "model", arguments, activation);
    if (task_ == Task::kMaskedLm) {
      const Scope decoder = root / "decoder";
      const Tensor untied = decoder.Find("weight");
      decoder_.emplace(decoder, untied.defined() ? untied : words_.weight(), decoder.Find("bias"));
    } else {
      decoder_.emplace(root / "classifier");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor hidden = Encode(batch);
    if (task_ == Task::kMaskedLm) return MaskedLm(hidden, batch);
    const bool pools = task_ == Task::kSequenceClassification;
    const Tensor sequence = pools ? Pool(hidden, batch.attention_mask) : hidden;
    Tensor states = head_(sequence);
    states = Dropout(states, classifier_dropout_);
    return Classified((*decoder_)(states), batch.labels);
  }

 private:
  void BuildLayers(const Scope& model, const ModelArguments& arguments, Activation activation) {
    const std::vector<std::string> types = arguments.config.Strings("layer_types");
    for (size_t i = 0; i < types.size(); ++i) {
      layers_.emplace_back((model / "layers")[static_cast<int64_t>(i)], arguments, activation,
                           types[i]);
      inv_freq_[types[i]] = (model / "rotary_emb").Get(types[i] + "_inv_freq");
    }
  }

  Tensor Embeddings(const Tensor& input_ids) const {
    const Scoped kind(input_ids.runtime().kind, Kind::kEmbedding);
    Tensor hidden = words_(input_ids);
    hidden = embedding_norm_(hidden);
    return Dropout(hidden, embedding_dropout_);
  }

  // ModernBertModel.forward.
  Tensor Encode(const Batch& batch) const {
    Runtime& runtime = batch.input_ids.runtime();
    Tensor position_ids;
    {
      const Scoped component(runtime.component, Component::kInputs);
      position_ids = Unsqueeze(Arange(runtime, batch.input_ids.size(1)), 0);
    }
    // mask_kwargs, a local, refers to the embeddings until the forward ends.
    const Tensor embeddings = Embeddings(batch.input_ids);
    Tensor hidden = embeddings;
    const Tensor full_mask = CreateBidirectionalMask(attn_, hidden, batch.attention_mask);
    const Tensor sliding_mask = CreateWindowMask(attn_, hidden, batch.attention_mask, window_);
    std::map<std::string, Rotary> rotary;
    for (const auto& [type, inv_freq] : inv_freq_) {
      const auto [cos, sin] = RotaryEmbedding(inv_freq, hidden, position_ids);
      rotary[type] = {cos, sin};
    }
    for (const EncoderLayer& layer : layers_) {
      const Tensor& mask = layer.attention_type() == kSliding ? sliding_mask : full_mask;
      const Rotary& angles = rotary.at(layer.attention_type());
      hidden = Checkpoint(
          checkpoint_, [&layer, mask, angles](const Tensor& x) { return layer(x, mask, angles); },
          hidden);
    }
    hidden = final_norm_(hidden);
    return hidden;
  }

  // The first token's state, or the mean of those that are not padding.
  Tensor Pool(const Tensor& hidden, const Tensor& attention_mask) const {
    if (!mean_pooling_) return Select(hidden, 1, 0);
    Tensor mask = attention_mask;
    if (!mask.defined()) {
      mask = Empty(hidden.runtime(), {hidden.size(0), hidden.size(1)}, DType::kBool);
    }
    constexpr int kSequence[] = {1};
    Tensor sum;
    {
      const Tensor masked = Mul(hidden, Unsqueeze(mask, -1));
      sum = Sum(masked, kSequence, false);
    }
    const Tensor count = Sum(mask, kSequence, true);
    return Div(sum, count);
  }

  ModelOutput MaskedLm(const Tensor& hidden, const Batch& batch) const {
    const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
    Tensor logits;
    {
      const Tensor predicted = head_(hidden);
      logits = (*decoder_)(predicted);
    }
    const Tensor loss = MaskedLmLoss(logits, batch);
    return {loss, logits, {}};
  }

  // ForMaskedLMLoss
  static Tensor MaskedLmLoss(const Tensor& given_logits, const Batch& batch) {
    Tensor logits = To(given_logits, DType::kFloat32);
    logits = View(logits, {-1, logits.size(-1)});
    return FixedCrossEntropy(logits, View(batch.labels, {-1}), batch.num_items_in_batch);
  }

  Task task_;
  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  int64_t window_;
  Embedding words_;
  LayerNorm embedding_norm_;
  double embedding_dropout_;
  std::vector<EncoderLayer> layers_;
  LayerNorm final_norm_;
  std::map<std::string, Tensor> inv_freq_;
  bool mean_pooling_;
  PredictionHead head_;
  double classifier_dropout_;
  std::optional<Linear> decoder_;  // or the classifier
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  if (config.Bool("sparse_prediction") && arguments.recipe.task == Task::kMaskedLm) {
    return Error::Unsupported(
        "\"sparse_prediction\" of model_type \"modernbert\" is not modelled: its memory depends on "
        "which tokens are masked");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("hidden_activation")));
  HEADROOM_ASSIGN_OR_RETURN(const Activation head_activation,
                            FindActivation(config.String("classifier_activation")));
  return std::unique_ptr<Model>(
      std::make_unique<ModernBert>(arguments, activation, head_activation));
}

}  // namespace

extern const Architecture kModernBert = {
    .model_type = "modernbert",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
