// SPDX-License-Identifier: Apache-2.0
//
// DecoderHead: what stands on top of a decoder: the language model's, or a classifier of the whole
// sequence or of each token, each with its loss.
//
// The heads of the decoder families differ in names and options, not in what they run:
//
//   DecoderHead head(arguments, wte_.weight(), {.classifier_dropout = 0.1});
//   return head(hidden, batch);   // of ...ForCausalLM, ...ForSequenceClassification, ...
#pragma once

#include <optional>

#include "predict/model.h"
#include "predict/modules.h"
#include "predict/tensor.h"

namespace headroom::predict {

struct DecoderHeadOptions {
  double classifier_dropout = 0;       // before a token classifier
  bool token_logits_to_float = false;  // its loss is ForTokenClassification of loss_utils.py
};

class DecoderHead {
 public:
  // `embedding` is the head's weight where the table has no lm_head.weight (tied).
  DecoderHead(const ModelArguments& arguments, const Tensor& embedding,
              const DecoderHeadOptions& options);

  // `hidden` [batch, sequence, width], held by the caller's frame.
  ModelOutput operator()(const Tensor& hidden, const Batch& batch) const;
  // The projection alone, of the positions to keep, for models that scale or cap their logits.
  Tensor Logits(const Tensor& hidden, const Batch& batch) const;
  // Whether the loss is taken from hidden states, past logits and what models do to them.
  bool is_fused() const { return fused_; }

 private:
  ModelOutput CausalLm(const Tensor& hidden, const Batch& batch) const;
  ModelOutput SequenceClassification(const Tensor& hidden, const Batch& batch) const;
  ModelOutput TokenClassification(const Tensor& hidden, const Batch& batch) const;

  Task task_;
  DecoderHeadOptions options_;
  bool pads_;  // the config names a padding token
  int64_t vocabulary_;
  bool fused_;  // SFTTrainer's head
  Tensor weight_;
  Tensor bias_;
  Linear linear_;
};

// Fails where the class itself would: a classifier of sequences needs to know the padding token.
Status CheckDecoderHead(const ModelArguments& arguments);

// config.classifier_dropout, else config.hidden_dropout, else 0.1: the token classifiers of several
// families.
double DecoderClassifierDropout(const ModelConfig& config);

// The losses of decoder classes: LOSS_MAPPING of ...ForCausalLM shifts the labels.
bool ShiftsCausalLabels(Task task);

}  // namespace headroom::predict
