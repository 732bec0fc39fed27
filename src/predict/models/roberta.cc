// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/roberta/modeling_roberta.py; modeling_xlm_roberta.py and
// modeling_camembert.py are copies of it.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

Tensor IndexOp(const char* name, const Tensor& a, DType dtype) {
  return Elementwise(name, std::span(&a, 1), dtype);
}

class RobertaEmbeddings {
 public:
  RobertaEmbeddings(const Scope& scope, const ModelConfig& config)
      : id_(scope.id()),
        word_(scope / "word_embeddings"),
        token_type_(scope / "token_type_embeddings"),
        norm_(scope / "LayerNorm"),
        position_(scope / "position_embeddings"),
        dropout_(config.Float("hidden_dropout_prob")) {}

  Tensor operator()(const Tensor& input_ids) const {
    Runtime& runtime = input_ids.runtime();
    const InModule in(runtime, id_);
    const Scoped kind(runtime.kind, Kind::kEmbedding);
    const Tensor position_ids = PositionIdsOf(input_ids);
    // gather(token_type_ids buffer, 1, position_ids)
    const Tensor token_type_ids = IndexOp("aten::gather", position_ids, DType::kInt64);

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
  // create_position_ids_from_input_ids: tokens counted from the left, padding left out.
  static Tensor PositionIdsOf(const Tensor& input_ids) {
    Runtime& runtime = input_ids.runtime();
    const Scoped component(runtime.component, Component::kInputs);
    const Scoped kind(runtime.kind, Kind::kPosition);
    Tensor mask;
    {
      const Tensor differs = CompareScalar(input_ids);
      mask = ToCopy(differs, DType::kInt32);
    }
    Tensor counted;
    {
      Tensor sums;
      {
        sums = Empty(runtime, mask.shape(), DType::kInt64);
        const Tensor cast = ToCopy(mask, DType::kInt64);
      }
      counted = ToCopy(sums, DType::kInt32);
    }
    Tensor incremental;
    {
      const Tensor shifted = AddScalarTo(counted);
      counted = Tensor();
      incremental = IndexOp("aten::mul", shifted, DType::kInt32);
    }
    const Tensor wide = ToCopy(incremental, DType::kInt64);
    return IndexOp("aten::add", wide, DType::kInt64);
  }

  static Tensor AddScalarTo(const Tensor& x) { return IndexOp("aten::add", x, x.dtype()); }

  ModuleId id_;
  Embedding word_;
  Embedding token_type_;
  LayerNorm norm_;
  Embedding position_;
  double dropout_;
};

class Roberta final : public Model {
 public:
  Roberta(const ModelArguments& arguments, Activation activation)
      : task_(arguments.recipe.task),
        attn_(arguments.attn),
        embeddings_(Scope(arguments.weights) / "roberta" / "embeddings", arguments.config),
        layers_(Scope(arguments.weights) / "roberta" / "encoder", arguments, activation),
        classifier_dropout_(ClassifierDropout(arguments.config)) {
    const Scope root(arguments.weights);
    if (task_ == Task::kMaskedLm) {
      const Scope head = root / "lm_head";
      // RobertaLMHead names gelu itself, whatever hidden_act says.
      lm_head_.emplace(head / "dense", head / "layer_norm", head / "decoder",
                       embeddings_.word_weight(), head.Get("bias"), &Gelu);
    } else if (task_ == Task::kSequenceClassification) {
      first_token_.emplace(root / "classifier", classifier_dropout_, &Tanh);
    } else {
      classifier_.emplace(root / "classifier");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Tensor sequence = Encode(batch);
    if (lm_head_) return Classified((*lm_head_)(sequence), batch.labels);
    if (first_token_) return Classified((*first_token_)(sequence), batch.labels);
    const Tensor dropped = Dropout(sequence, classifier_dropout_);
    return Classified((*classifier_)(dropped), batch.labels);
  }

 private:
  // RobertaModel.forward; its local embedding_output lives to the end.
  Tensor Encode(const Batch& batch) const {
    const Tensor embedding_output = embeddings_(batch.input_ids);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, batch.attention_mask);
    return layers_(embedding_output, mask);
  }

  Task task_;
  AttnImplementation attn_;
  RobertaEmbeddings embeddings_;
  BertLayers layers_;
  double classifier_dropout_;
  std::optional<MaskedLmHead> lm_head_;
  std::optional<FirstTokenHead> first_token_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Roberta>(arguments, activation));
}

constexpr Architecture RobertaAs(std::string_view model_type) {
  return {
      .model_type = model_type,
      .accepts_loss_kwargs = [](Task) { return true; },
      .loss_shifts_labels = [](Task) { return false; },
      .make = &Make,
      // create_position_ids_from_input_ids counts from padding_idx + 1.
      .reserved_positions =
          [](const ModelConfig& config) { return config.MaybeInt("pad_token_id").value_or(1) + 1; },
  };
}

}  // namespace

extern const Architecture kRoberta = RobertaAs("roberta");
extern const Architecture kXlmRoberta = RobertaAs("xlm-roberta");
extern const Architecture kCamembert = RobertaAs("camembert");

}  // namespace headroom::predict
