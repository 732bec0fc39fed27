// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, models/bert/modeling_bert.py.
#include "predict/models/architectures.h"
#include "predict/models/bert_layers.h"

namespace headroom::predict {
namespace {

class Bert final : public Model {
 public:
  Bert(const ModelArguments& arguments, Activation activation)
      : task_(arguments.recipe.task),
        attn_(arguments.attn),
        embeddings_(Scope(arguments.weights) / "bert" / "embeddings", arguments.config),
        layers_(Scope(arguments.weights) / "bert" / "encoder", arguments, activation),
        classifier_dropout_(ClassifierDropout(arguments.config)) {
    const Scope root(arguments.weights);
    if (task_ == Task::kSequenceClassification) pooler_.emplace(root / "bert" / "pooler" / "dense");
    if (task_ == Task::kMaskedLm) {
      const Scope head = root / "cls" / "predictions";
      lm_head_.emplace(head / "transform" / "dense", head / "transform" / "LayerNorm",
                       head / "decoder", embeddings_.word_weight(), head.Get("bias"), activation);
    } else {
      classifier_.emplace(root / "classifier");
    }
  }

  ModelOutput Forward(const Batch& batch) override {
    const Encoded outputs = RunEncoder(batch);
    if (task_ == Task::kMaskedLm) return Classified((*lm_head_)(outputs.sequence), batch.labels);
    const bool pooled = task_ == Task::kSequenceClassification;
    const Tensor dropped = Dropout(pooled ? outputs.pooled : outputs.sequence, classifier_dropout_);
    return Classified((*classifier_)(dropped), batch.labels);
  }

 private:
  struct Encoded {
    Tensor sequence;
    Tensor pooled;
  };

  // BertModel.forward; its local embedding_output lives to the end.
  Encoded RunEncoder(const Batch& batch) const {
    const Tensor embedding_output = embeddings_(batch.input_ids);
    const Tensor mask = CreateBidirectionalMask(attn_, embedding_output, batch.attention_mask);
    const Tensor hidden = layers_(embedding_output, mask);
    Tensor pooled;
    if (pooler_) {
      pooled = (*pooler_)(Select(hidden, 1, 0));
      pooled = Tanh(pooled);
    }
    return {hidden, pooled};
  }

  Task task_;
  AttnImplementation attn_;
  BertEmbeddings embeddings_;
  BertLayers layers_;
  double classifier_dropout_;
  std::optional<Linear> pooler_;
  std::optional<MaskedLmHead> lm_head_;
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
