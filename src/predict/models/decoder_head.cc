// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0: the ...ForCausalLM, ...ForSequenceClassification and
// ...ForTokenClassification classes of the decoder modelling files; loss/loss_utils.py.
#include "predict/models/decoder_head.h"

#include <string_view>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/losses.h"
#include "predict/models/attention.h"
#include "predict/models/fused_head.h"

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

Scope HeadScope(const ModelArguments& arguments) {
  return Scope(arguments.weights) / HeadName(arguments.weights, arguments.recipe.task);
}

Tensor HeadWeight(const ModelArguments& arguments, const Tensor& embedding) {
  const Tensor own = HeadScope(arguments).Find("weight");
  return own.defined() ? own : embedding;
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

// "colwise_gather_output" of tensor parallelism: all ranks' logits arrive one after the other and
// are put side by side. Backward cuts this rank's out again.
Tensor GatherLogits(const Tensor& local, int64_t vocabulary) {
  if (local.size(-1) >= vocabulary) return local;
  Runtime& runtime = local.runtime();
  GradRecorder record(runtime, "FromTorchTensorBackward", {local});
  Shape whole = local.shape();
  whole[-1] = vocabulary;
  Tensor logits;
  {
    const Scoped kind(runtime.kind, Kind::kCollective);
    const Tensor gathered = Empty(runtime, whole, local.dtype());
    logits = Empty(runtime, whole, local.dtype());
  }
  const Shape shape = local.shape();
  return record.Finish(std::move(logits), [shape](Grads& grads) -> Grads {
    return {Empty(grads[0].runtime(), shape, grads[0].dtype())};
  });
}

}  // namespace

DecoderHead::DecoderHead(const ModelArguments& arguments, const Tensor& embedding,
                         const DecoderHeadOptions& options)
    : task_(arguments.recipe.task),
      options_(options),
      pads_(arguments.config.MaybeInt("pad_token_id").has_value()),
      vocabulary_(arguments.config.MaybeInt("vocab_size").value_or(0)),
      fused_(arguments.recipe.sft_trainer && task_ == Task::kCausalLm),
      weight_(HeadWeight(arguments, embedding)),
      bias_(HeadScope(arguments).Find("bias")),
      linear_(HeadScope(arguments), weight_, bias_) {}

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
  if (fused_ && batch.labels.defined()) return FusedLmHead(hidden, weight_, bias_, batch);
  const Tensor logits = Logits(hidden, batch);
  if (!batch.labels.defined()) return {Tensor(), logits, {}};
  const Tensor loss = CausalLmLoss(logits, batch.labels, batch.num_items_in_batch);
  return {loss, logits, {}};
}

Tensor DecoderHead::Logits(const Tensor& hidden, const Batch& batch) const {
  const Tensor kept = StatesToKeep(hidden, batch);
  const Tensor logits = linear_(kept);
  return task_ == Task::kCausalLm ? GatherLogits(logits, vocabulary_) : logits;
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
