// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/deberta_v2/modeling_deberta_v2.py. The class has eager attention
// only.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"
#include "predict/models/deberta_attention.h"

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

class Embeddings {
 public:
  Embeddings(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        word_(scope / "word_embeddings"),
        norm_(scope / "LayerNorm"),
        dropout_(config.Float("hidden_dropout_prob")),
        position_ids_(scope.Get("position_ids")) {
    if (config.Bool("position_biased_input")) position_.emplace(scope / "position_embeddings");
    if (config.Int("type_vocab_size") > 0) token_type_.emplace(scope / "token_type_embeddings");
    if ((scope / "embed_proj").Find("weight").defined()) project_.emplace(scope / "embed_proj");
  }

  // `attention_mask` [batch, sequence] of any type: the states of padding become zeros.
  Tensor operator()(const Tensor& input_ids, const Tensor& token_type_ids,
                    const Tensor& attention_mask) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor words = word_(input_ids);
    const Tensor positions =
        position_ ? (*position_)(Slice(position_ids_, 1, 0, input_ids.size(1))) : ZerosLike(words);
    Tensor token_types;
    Tensor embeddings = words;
    if (position_) embeddings = Add(embeddings, positions);
    if (token_type_) {
      token_types = (*token_type_)(token_type_ids);
      embeddings = Add(embeddings, token_types);
    }
    if (project_) embeddings = (*project_)(embeddings);
    embeddings = norm_(embeddings);
    const Tensor mask = To(Unsqueeze(attention_mask, 2), embeddings.dtype());
    embeddings = Mul(embeddings, mask);
    embeddings = Dropout(embeddings, dropout_);
    return embeddings;
  }
  const Tensor& word_weight() const { return word_.weight(); }

 private:
  ModuleId id_;
  Embedding word_;
  LayerNorm norm_;
  double dropout_;
  Tensor position_ids_;
  std::optional<Embedding> position_;
  std::optional<Embedding> token_type_;
  std::optional<Linear> project_;
};

class DebertaLayer {
 public:
  DebertaLayer(const Scope& scope, const ModelConfig& config, const RelativeOptions& options,
               Activation activation)
      : id_(scope.id()),
        self_(scope / "attention" / "self", config, options),
        self_output_(scope / "attention" / "output", config),
        intermediate_(scope / "intermediate" / "dense"),
        activation_(activation),
        output_(scope / "output", config) {}

  Tensor operator()(const Tensor& hidden, const Tensor& mask, const Relative& relative) const {
    const InModule in(hidden.runtime(), id_);
    const Tensor attention = Attention(hidden, mask, relative);
    const Scoped kind(hidden.runtime().kind, Kind::kMlp);
    Tensor intermediate = intermediate_(attention);
    intermediate = activation_(intermediate);
    return output_(intermediate, attention);
  }

 private:
  Tensor Attention(const Tensor& hidden, const Tensor& mask, const Relative& relative) const {
    const Scoped kind(hidden.runtime().kind, Kind::kAttention);
    const Tensor states = self_(hidden, mask, relative);
    return self_output_(states, hidden);
  }

  ModuleId id_;
  DisentangledAttention self_;
  BertOutput self_output_;
  Linear intermediate_;
  Activation activation_;
  BertOutput output_;
};

class Encoder {
 public:
  Encoder(const Scope& scope, const ModelArguments& arguments, Activation activation)
      : id_(scope.id()),
        checkpoint_(arguments.checkpoint),
        options_(ReadRelativeOptions(arguments.config)) {
    if (options_.enabled) table_ = (scope / "rel_embeddings").Get("weight");
    if (options_.normed) norm_.emplace(scope / "LayerNorm");
    for (int64_t i = 0; i < arguments.config.Int("num_hidden_layers"); ++i) {
      layers_.emplace_back((scope / "layer")[i], arguments.config, options_, activation);
    }
  }

  // Every layer's output, the embeddings first: the class keeps them while it runs.
  std::vector<Tensor> operator()(const Tensor& embedding_output, const Tensor& padding) {
    Runtime& runtime = embedding_output.runtime();
    const InModule in(runtime, id_);
    const Tensor mask = AttentionMask(padding);
    Relative relative;
    if (options_.enabled) {
      relative.positions =
          RelativePositions(runtime, embedding_output.size(1), options_.bucketed, !ran_);
      ran_ = true;
      relative.embeddings = norm_ ? (*norm_)(table_) : table_;
    }
    std::vector<Tensor> states = {embedding_output};
    for (const DebertaLayer& layer : layers_) {
      const Tensor inputs[] = {states.back(), mask};
      states.push_back(Checkpoint(
          checkpoint_,
          [&layer, relative](std::span<const Tensor> x) { return layer(x[0], x[1], relative); },
          inputs));
    }
    return states;
  }

 private:
  // get_attention_mask: [batch, 1, sequence, sequence], a product of both sides.
  static Tensor AttentionMask(const Tensor& padding) {
    const PositionScope scope(padding.runtime());
    const Tensor keys = Unsqueeze(Unsqueeze(padding, 1), 2);
    const Tensor queries = Unsqueeze(Squeeze(keys, -2), -1);
    return IndexOp("aten::mul", {keys, queries}, padding.dtype());
  }

  ModuleId id_;
  CheckpointKind checkpoint_;
  RelativeOptions options_;
  Tensor table_;
  std::optional<LayerNorm> norm_;
  std::vector<DebertaLayer> layers_;
  bool ran_ = false;
};

// DebertaV2LMPredictionHead, the one that is not "legacy": its product is no linear layer.
class MatmulLmHead {
 public:
  MatmulLmHead(const Scope& scope, const Tensor& word_weight, Activation activation)
      : dense_(scope / "dense"),
        norm_(scope / "LayerNorm"),
        bias_(scope.Get("bias")),
        word_weight_(word_weight),
        activation_(activation) {}

  Tensor operator()(const Tensor& sequence) const {
    const Scoped kind(sequence.runtime().kind, Kind::kLogitsLoss);
    Tensor hidden = dense_(sequence);
    hidden = activation_(hidden);
    hidden = norm_(hidden);
    hidden = Add(Matmul(hidden, T(word_weight_)), bias_);
    return hidden;
  }

 private:
  Linear dense_;
  LayerNorm norm_;
  Tensor bias_;
  Tensor word_weight_;
  Activation activation_;
};

// ContextPooler
class Pooler {
 public:
  Pooler(const Scope& scope, const ModelConfig& config, Activation activation)
      : dense_(scope / "dense"),
        dropout_(config.Float("pooler_dropout")),
        activation_(activation) {}

  Tensor operator()(const Tensor& sequence) const {
    Tensor token = Select(sequence, 1, 0);
    token = Dropout(token, dropout_);
    Tensor pooled = dense_(token);
    pooled = activation_(pooled);
    return pooled;
  }

 private:
  Linear dense_;
  double dropout_;
  Activation activation_;
};

class DebertaV2 final : public Model {
 public:
  DebertaV2(const ModelArguments& arguments, Activation activation, Activation pooler_activation)
      : checks_padding_(arguments.config.MaybeInt("pad_token_id").has_value()),
        embeddings_(Scope(arguments.weights) / "deberta" / "embeddings", arguments.config),
        encoder_(Scope(arguments.weights) / "deberta" / "encoder", arguments, activation),
        dropout_(arguments.config.Float("hidden_dropout_prob")) {
    const Scope root(arguments.weights);
    const ModelConfig& config = arguments.config;
    if (arguments.recipe.task == Task::kMaskedLm) {
      BuildLmHead(root, config, activation);
      return;
    }
    classifier_.emplace(root / "classifier");
    if (arguments.recipe.task == Task::kSequenceClassification) {
      pooler_.emplace(root / "pooler", config, pooler_activation);
      dropout_ = config.MaybeFloat("cls_dropout").value_or(dropout_);
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor sequence = RunEncoder(batch);
    if (lm_head_) return Classified((*lm_head_)(sequence), batch.labels);
    if (matmul_head_) return Classified((*matmul_head_)(sequence), batch.labels);
    if (!pooler_) {
      const Tensor dropped = Dropout(sequence, dropout_);
      return Classified((*classifier_)(dropped), batch.labels);
    }
    Tensor pooled = (*pooler_)(sequence);
    pooled = Dropout(pooled, dropout_);
    const Tensor logits = (*classifier_)(pooled);
    const Tensor loss = LabeledLoss(logits, batch.labels);
    return {loss, logits, {}};
  }

 private:
  void BuildLmHead(const Scope& root, const ModelConfig& config, Activation activation) {
    if (!config.Bool("legacy")) {
      matmul_head_.emplace(root / "lm_predictions" / "lm_head", embeddings_.word_weight(),
                           activation);
      return;
    }
    const Scope head = root / "cls" / "predictions";
    lm_head_.emplace(head / "transform" / "dense", head / "transform" / "LayerNorm",
                     head / "decoder", embeddings_.word_weight(), head.Get("bias"), activation);
  }

  // DebertaV2Model.forward
  Tensor RunEncoder(const Batch& batch) {
    Runtime& runtime = batch.input_ids.runtime();
    const Shape shape = {batch.input_ids.size(0), batch.input_ids.size(1)};
    Tensor attention_mask = batch.attention_mask;
    Tensor token_type_ids;
    {
      const PositionScope scope(runtime);
      if (!attention_mask.defined()) {
        if (checks_padding_) WarnIfPadding(batch.input_ids);
        attention_mask = Empty(runtime, shape, DType::kFloat32);
      }
      token_type_ids = Zeros(runtime, shape, DType::kInt64);
    }
    const Tensor embedding_output = embeddings_(batch.input_ids, token_type_ids, attention_mask);
    const std::vector<Tensor> states = encoder_(embedding_output, attention_mask);
    return states.back();
  }

  // warn_if_padding_and_no_attention_mask: pad_token_id in input_ids[:, [-1, 0]]
  static void WarnIfPadding(const Tensor& input_ids) {
    Runtime& runtime = input_ids.runtime();
    Tensor ends;
    {
      const Tensor columns = Empty(runtime, {2}, DType::kInt64);
      ends = Empty(runtime, {input_ids.size(0), 2}, DType::kInt64);
    }
    const Tensor equal = CompareScalar(ends);
    const Tensor any = Empty(runtime, {}, DType::kBool);
  }

  // The loss without a problem_type: over the rows whose label is not negative, all of them here.
  static Tensor LabeledLoss(const Tensor& logits, const Tensor& labels) {
    Runtime& runtime = logits.runtime();
    const Scoped kind(runtime.kind, Kind::kLogitsLoss);
    const Tensor rows = NonZero(labels);
    const Tensor labeled = Gather(logits, Expand(rows, {-1, logits.size(1)}));
    const Tensor targets = IndexOp("aten::gather", {labels}, DType::kInt64);
    return ClassificationLoss(To(labeled, DType::kFloat32), targets);
  }

  // (labels >= 0).nonzero(): [rows, 1]
  static Tensor NonZero(const Tensor& labels) {
    Runtime& runtime = labels.runtime();
    // nonzero_cuda's temporaries of cub's reduce and select, up to 3,072 rows.
    constexpr int64_t kReduceScratch = 1;
    constexpr int64_t kSelectScratch = 1023;
    const Tensor positive = CompareScalar(labels);
    const Ref<Storage> count = runtime.Scratch(4);
    { const Ref<Storage> reduce = runtime.Scratch(kReduceScratch); }
    Tensor rows = Empty(runtime, {labels.size(0), 1}, DType::kInt64);
    { const Ref<Storage> select = runtime.Scratch(kSelectScratch); }
    return rows;
  }

  bool checks_padding_;
  Embeddings embeddings_;
  Encoder encoder_;
  double dropout_;
  std::optional<MaskedLmHead> lm_head_;
  std::optional<MatmulLmHead> matmul_head_;
  std::optional<Pooler> pooler_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  const ModelConfig& config = arguments.config;
  if (config.Int("conv_kernel_size") > 0) {
    return Error::Unsupported(
        "\"conv_kernel_size\" of model_type \"deberta-v2\" is not modelled: only models without "
        "the "
        "convolution");
  }
  const bool shared_norm = config.String("norm_rel_ebd").find("layer_norm") != std::string::npos;
  if (arguments.checkpoint == CheckpointKind::kReentrant && config.Bool("relative_attention") &&
      shared_norm) {
    return Error::BadInput(
        "model_type \"deberta-v2\" fails under reentrant checkpointing, whose layers would run "
        "backward through one shared norm several times: set use_reentrant to false");
  }
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(config.String("hidden_act")));
  HEADROOM_ASSIGN_OR_RETURN(const Activation pooler_activation,
                            FindActivation(config.String("pooler_hidden_act")));
  return std::unique_ptr<Model>(
      std::make_unique<DebertaV2>(arguments, activation, pooler_activation));
}

}  // namespace

extern const Architecture kDebertaV2 = {
    .model_type = "deberta-v2",
    .supports_sdpa = false,
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
