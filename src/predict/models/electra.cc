// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/electra/modeling_electra.py.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

class Electra final : public Model {
 public:
  Electra(const ModelArguments& arguments, Activation activation)
      : attn_(arguments.attn),
        embeddings_(Scope(arguments.weights) / "electra" / "embeddings", arguments.config),
        layers_(Scope(arguments.weights) / "electra" / "encoder", arguments, activation),
        classifier_dropout_(ClassifierDropout(arguments.config)) {
    const Scope root(arguments.weights);
    if (arguments.config.Int("embedding_size") != arguments.config.Int("hidden_size")) {
      project_.emplace(root / "electra" / "embeddings_project");
    }
    // Both heads name gelu themselves, whatever hidden_act says.
    if (arguments.recipe.task == Task::kMaskedLm) {
      const Scope head = root / "generator_predictions";
      lm_head_.emplace(head / "dense", head / "LayerNorm", root / "generator_lm_head",
                       embeddings_.word_weight(), Tensor(), &Gelu);
    } else if (arguments.recipe.task == Task::kSequenceClassification) {
      first_token_.emplace(root / "classifier", classifier_dropout_, &Gelu);
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
  Tensor Encode(const Batch& batch) const {
    Tensor embedding_output = embeddings_(batch.input_ids);
    if (project_) embedding_output = (*project_)(embedding_output);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, batch.attention_mask);
    return layers_(embedding_output, mask);
  }

  AttnImplementation attn_;
  BertEmbeddings embeddings_;
  std::optional<Linear> project_;
  BertLayers layers_;
  double classifier_dropout_;
  std::optional<MaskedLmHead> lm_head_;
  std::optional<FirstTokenHead> first_token_;
  std::optional<Linear> classifier_;
};

Result<std::unique_ptr<Model>> Make(const ModelArguments& arguments) {
  HEADROOM_ASSIGN_OR_RETURN(const Activation activation,
                            FindActivation(arguments.config.String("hidden_act")));
  return std::unique_ptr<Model>(std::make_unique<Electra>(arguments, activation));
}

}  // namespace

extern const Architecture kElectra = {
    .model_type = "electra",
    .accepts_loss_kwargs = [](Task) { return true; },
    .loss_shifts_labels = [](Task) { return false; },
    .make = &Make,
};

}  // namespace headroom::predict
