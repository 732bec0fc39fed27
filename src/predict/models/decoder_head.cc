// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: the ...ForCausalLM, ...ForSequenceClassification and
// ...ForTokenClassification classes of the decoder modelling files; loss/loss_utils.py.
#include "predict/models/decoder_head.h"

#include <string_view>

#include "base/check.h"
#include "predict/losses.h"
#include "predict/models/attention.h"

namespace headroom::predict {
namespace {

std::string_view HeadName(const Weights& weights, Task task) {
  switch (task) {
    case Task::kCausalLm:
      return "lm_head";
    case Task::kSequenceClassification:
      return "score";
    // GenericForTokenClassification of modeling_layers.py says "score".
    case Task::kTokenClassification:
      return weights.Has("score.weight") ? "score" : "classifier";
    default:
      break;
  }
  HEADROOM_CHECK(false, "a decoder without a head for this task");
  return {};
}

Linear Head(const ModelArguments& arguments, const Tensor& embedding) {
  const Scope scope = Scope(arguments.weights) / HeadName(arguments.weights, arguments.recipe.task);
  const Tensor own = scope.Find("weight");
  return Linear(scope, own.defined() ? own : embedding, scope.Find("bias"));
}

// The last token of each row that is no padding: (arange(sequence) * (ids != pad)).argmax(-1).
Tensor LastTokens(const Tensor& input_ids) {
  Runtime& runtime = input_ids.runtime();
  const Scoped kind(runtime.kind, Kind::kPosition);
  const int64_t batch = input_ids.size(0);
  const Tensor not_padding = ToCopy(CompareScalar(input_ids), DType::kInt32);
  const Tensor indices = Arange(runtime, input_ids.size(1), DType::kInt32);
  const Tensor product = Mul(indices, not_padding);
  return Empty(runtime, {batch}, DType::kInt64);
}

}  // namespace

DecoderHead::DecoderHead(const ModelArguments& arguments, const Tensor& embedding,
                         const DecoderHeadOptions& options)
    : task_(arguments.recipe.task),
      options_(options),
      pads_(arguments.config.MaybeInt("pad_token_id").has_value()),
      linear_(Head(arguments, embedding)) {}

ModelOutput DecoderHead::operator()(const Tensor& hidden, const Batch& batch) const {
  const Scoped kind(hidden.runtime().kind, Kind::kLogitsLoss);
  switch (task_) {
    case Task::kSequenceClassification:
      return SequenceClassification(hidden, batch);
    case Task::kTokenClassification:
      return TokenClassification(hidden, batch);
    default:
      return CausalLm(hidden, batch);
  }
}

ModelOutput DecoderHead::CausalLm(const Tensor& hidden, const Batch& batch) const {
  const Tensor logits = Logits(hidden, batch);
  if (!batch.labels.defined()) return {Tensor(), logits, {}};
  const Tensor loss = CausalLmLoss(logits, batch.labels, batch.num_items_in_batch);
  return {loss, logits, {}};
}

Tensor DecoderHead::Logits(const Tensor& hidden, const Batch& batch) const {
  const Tensor kept = StatesToKeep(hidden, batch);
  return linear_(kept);
}

ModelOutput DecoderHead::SequenceClassification(const Tensor& hidden, const Batch& batch) const {
  Runtime& runtime = hidden.runtime();
  const Tensor logits = linear_(hidden);
  // Without a padding token (and so a batch of one) the last position is taken.
  const Tensor last = pads_ ? LastTokens(batch.input_ids) : Tensor();
  const Tensor rows = Arange(runtime, logits.size(0));
  const Tensor columns = last.defined() ? last : Empty(runtime, {}, DType::kInt64);
  const Tensor pooled = IndexRows(logits, rows, columns);
  const Tensor loss = ClassifierLoss(pooled, batch.labels);
  return {loss, pooled, {}};
}

ModelOutput DecoderHead::TokenClassification(const Tensor& given, const Batch& batch) const {
  const Tensor hidden = Dropout(given, options_.classifier_dropout);
  const Tensor logits = linear_(hidden);
  Tensor flat = View(logits, {-1, logits.size(-1)});
  if (options_.token_logits_to_float) flat = To(flat, DType::kFloat32);
  const Tensor loss = CrossEntropy(flat, View(batch.labels, {-1}));
  return {loss, logits, {}};
}

Status CheckDecoderHead(const ModelArguments& arguments) {
  if (arguments.recipe.task != Task::kSequenceClassification) return {};
  if (arguments.recipe.per_device_train_batch_size == 1) return {};
  if (arguments.config.MaybeInt("pad_token_id")) return {};
  return Error::BadInput(arguments.config.model_type() +
                         " classifies one sequence at a time unless config.json names a "
                         "pad_token_id: add it, or set the batch size to 1");
}

double DecoderClassifierDropout(const ModelConfig& config) {
  if (const std::optional<double> own = config.MaybeFloat("classifier_dropout")) return *own;
  return config.MaybeFloat("hidden_dropout").value_or(0.1);
}

bool ShiftsCausalLabels(Task task) { return task == Task::kCausalLm; }

}  // namespace headroom::predict
