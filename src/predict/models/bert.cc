// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bert/modeling_bert.py.
#include "predict/models/architectures.h"
#include "predict/models/attention.h"

namespace headroom::predict {
namespace {

class BertEmbeddings {
 public:
  BertEmbeddings(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        word_(scope / "word_embeddings"),
        position_(scope / "position_embeddings"),
        token_type_(scope / "token_type_embeddings"),
        norm_(scope / "LayerNorm"),
        dropout_(config.Float("hidden_dropout_prob")),
        position_ids_(scope.Get("position_ids")),
        token_type_ids_(scope.Get("token_type_ids")) {}

  Tensor operator()(const Tensor& input_ids) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const int64_t batch = input_ids.size(0);
    const int64_t sequence = input_ids.size(1);
    const bool whole = sequence == position_ids_.size(1);
    const Tensor position_ids = whole ? position_ids_ : Slice(position_ids_, 1, 0, sequence);
    // gather(token_type_ids buffer, 1, position_ids), seen by every row of the batch
    const Tensor gathered = Empty(runtime, {1, sequence}, DType::kInt64);
    const Tensor token_type_ids = Expand(gathered, {batch, sequence});

    const Tensor words = word_(input_ids);
    const Tensor token_types = token_type_(token_type_ids);
    Tensor embeddings = Add(words, token_types);
    const Tensor positions = position_(position_ids);
    embeddings = Add(embeddings, positions);
    embeddings = norm_(embeddings);
    embeddings = Dropout(embeddings, dropout_);
    return embeddings;
  }
  const Tensor& word_weight() const { return word_.weight(); }

 private:
  ModuleId id_;
  Embedding word_;
  Embedding position_;
  Embedding token_type_;
  LayerNorm norm_;
  double dropout_;
  Tensor position_ids_;
  Tensor token_type_ids_;
};

class BertSelfAttention {
 public:
  BertSelfAttention(const Scope& scope, const ModelArguments& arguments)
      : id_(scope.id()),
        query_(scope / "query"),
        key_(scope / "key"),
        value_(scope / "value"),
        heads_(arguments.config.Int("num_attention_heads")),
        eager_(arguments.attn == AttnImplementation::kEager),
        dropout_(arguments.config.Float("attention_probs_dropout_prob")) {}

  AttentionOutput operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor q = Heads(query_(hidden));
    const Tensor k = Heads(key_(hidden));
    const Tensor v = Heads(value_(hidden));
    AttentionOutput output;
    if (eager_) {
      output = Eager(q, k, v, mask);
    } else {
      output.states = SdpaAttentionForward(q, k, v, mask, {.dropout = dropout_});
    }
    output.states = Contiguous(Reshape(output.states, {hidden.size(0), hidden.size(1), -1}));
    return output;
  }

 private:
  Tensor Heads(const Tensor& x) const {
    return Transpose(View(x, {x.size(0), x.size(1), heads_, -1}), 1, 2);
  }

  // eager_attention_forward: softmax in the autocast's fp32, without a cast back of its own.
  AttentionOutput Eager(const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& mask) const {
    Tensor weights;
    {
      const Scoped scores(q.runtime().kind, Kind::kAttentionScores);
      weights = Matmul(q, Transpose(k, 2, 3));
      weights = MulScalar(weights);
      if (mask.defined()) weights = Add(weights, mask);
      weights = Softmax(weights);
      weights = Dropout(weights, dropout_);
    }
    const Tensor output = Matmul(weights, v);
    return {Contiguous(Transpose(output, 1, 2)), weights};
  }

  ModuleId id_;
  Linear query_;
  Linear key_;
  Linear value_;
  int64_t heads_;
  bool eager_;
  double dropout_;
};

// BertSelfOutput and BertOutput: dense, dropout, residual, norm.
class BertOutput {
 public:
  BertOutput(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        dense_(scope / "dense"),
        norm_(scope / "LayerNorm"),
        dropout_(config.Float("hidden_dropout_prob")) {}

  Tensor operator()(const Tensor& states, const Tensor& input) const {
    const InModule in(states.runtime(), id_);
    Tensor hidden = dense_(states);
    hidden = Dropout(hidden, dropout_);
    Tensor sum;
    {
      const Scoped kind(states.runtime().kind, Kind::kResidual);
      sum = Add(hidden, input);
    }
    // LayerNorm's argument lives through its call; the name is bound anew only afterwards.
    const Tensor normed = norm_(sum);
    return normed;
  }

 private:
  ModuleId id_;
  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};

class BertLayer {
 public:
  BertLayer(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        self_(scope / "attention" / "self", arguments),
        self_output_(scope / "attention" / "output", arguments.config),
        intermediate_id_((scope / "intermediate").id()),
        intermediate_(scope / "intermediate" / "dense"),
        activation_(activation),
        output_(scope / "output", arguments.config) {}

  Tensor operator()(const Tensor& hidden, const Tensor& mask) const {
    const InModule in(hidden.runtime(), id_);
    const AttentionOutput attention = Attention(hidden, mask);
    const Scoped kind(hidden.runtime().kind, Kind::kMlp);
    const Tensor intermediate = Intermediate(attention.states);
    return output_(intermediate, attention.states);
  }

 private:
  AttentionOutput Attention(const Tensor& hidden, const Tensor& mask) const {
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const AttentionOutput output = self_(hidden, mask);
    return {self_output_(output.states, hidden), output.weights};
  }

  Tensor Intermediate(const Tensor& attention) const {
    const InModule in(attention.runtime(), intermediate_id_);
    Tensor hidden = intermediate_(attention);
    hidden = activation_(hidden);
    return hidden;
  }

  ModuleId id_;
  BertSelfAttention self_;
  BertOutput self_output_;
  ModuleId intermediate_id_;
  Linear intermediate_;
  Activation activation_;
  BertOutput output_;
};

class Bert final : public Model {
 public:
  Bert(const ModelArguments& arguments, Activation activation)
      : task_(arguments.recipe.task),
        attn_(arguments.attn),
        checkpoint_(arguments.checkpoint),
        activation_(activation),
        embeddings_(Scope(arguments.weights) / "bert" / "embeddings", arguments.config) {
    const Scope root(arguments.weights);
    const ModelConfig& config = arguments.config;
    for (int64_t i = 0; i < config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back((root / "bert" / "encoder" / "layer")[i], arguments, activation);
    }
    classifier_dropout_ =
        config.MaybeFloat("classifier_dropout").value_or(config.Float("hidden_dropout_prob"));
    if (task_ == Task::kSequenceClassification) pooler_.emplace(root / "bert" / "pooler" / "dense");
    if (task_ == Task::kMaskedLm) {
      const Scope head = root / "cls" / "predictions";
      transform_.emplace(head / "transform" / "dense");
      transform_norm_.emplace(head / "transform" / "LayerNorm");
      const Tensor untied = (head / "decoder").Find("weight");
      decoder_.emplace(head / "decoder", untied.defined() ? untied : embeddings_.word_weight(),
                       head.Get("bias"));
    } else {
      classifier_.emplace(root / "classifier");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    if (task_ == Task::kSequenceClassification) return SequenceClassification(batch);
    if (task_ == Task::kTokenClassification) return TokenClassification(batch);
    return MaskedLm(batch);
  }

 private:
  struct Encoded {
    Tensor sequence;
    Tensor pooled;
  };

  // BertModel.forward; its local embedding_output lives to the end.
  Encoded Encode(const Batch& batch) const {
    const Tensor embedding_output = embeddings_(batch.input_ids);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, batch.attention_mask);
    Tensor hidden = embedding_output;
    for (const BertLayer& layer : layers_) {
      hidden = Checkpoint(
          checkpoint_, [&layer, mask](const Tensor& x) { return layer(x, mask); }, hidden);
    }
    Tensor pooled;
    if (pooler_) {
      pooled = (*pooler_)(Select(hidden, 1, 0));
      pooled = Tanh(pooled);
    }
    return {hidden, pooled};
  }

  ModelOutput SequenceClassification(const Batch& batch) const {
    const Encoded outputs = Encode(batch);
    const Tensor pooled = Dropout(outputs.pooled, classifier_dropout_);
    const Tensor logits = (*classifier_)(pooled);
    const Tensor loss = CrossEntropy(View(logits, {-1, logits.size(-1)}), View(batch.labels, {-1}));
    return {loss, logits, {}};
  }

  ModelOutput TokenClassification(const Batch& batch) const {
    const Encoded outputs = Encode(batch);
    const Tensor sequence = Dropout(outputs.sequence, classifier_dropout_);
    const Tensor logits = (*classifier_)(sequence);
    const Tensor loss = CrossEntropy(View(logits, {-1, logits.size(-1)}), View(batch.labels, {-1}));
    return {loss, logits, {}};
  }

  ModelOutput MaskedLm(const Batch& batch) const {
    const Encoded outputs = Encode(batch);
    const Scoped kind(outputs.sequence.runtime().kind, Kind::kLogitsLoss);
    Tensor hidden = (*transform_)(outputs.sequence);
    hidden = activation_(hidden);
    hidden = (*transform_norm_)(hidden);
    hidden = (*decoder_)(hidden);
    const Tensor loss = CrossEntropy(View(hidden, {-1, hidden.size(-1)}), View(batch.labels, {-1}));
    return {loss, hidden, {}};
  }

  Task task_;
  AttnImplementation attn_;
  CheckpointKind checkpoint_;
  Activation activation_;
  BertEmbeddings embeddings_;
  std::vector<BertLayer> layers_;
  double classifier_dropout_ = 0;
  std::optional<Linear> pooler_;
  std::optional<Linear> transform_;
  std::optional<LayerNorm> transform_norm_;
  std::optional<Linear> decoder_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Bert>(arguments, activation));
}

}  // namespace

extern const Architecture kBert = {
    .model_type = "bert",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
