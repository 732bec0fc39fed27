// SPDX-License-Identifier: Apache-2.0
//
// The ops of the native engine: few, and as large as a fused kernel.
//
// N is the rows of a batch (batch x sequence), C the hidden size, V the vocabulary, B the batch, S
// a sequence, H heads of D. Operands stand by position; [x] may be absent (kNoTensor).
//
//   kind              inputs                                   outputs
//   kEmbedding        ids, table, [positions, types, type ids] y [N, C]
//   kLinear           x [N, K], weight [M, K], [bias]          y [N, M]
//   kNorm             x, [residual], gamma, [beta]             y, [sum], [mean], rstd
//   kAttention        q, k, v, [key lengths B], [slopes H]     o, lse [B, H, S]
//   kRope             q or k, cos, sin                         the same bytes, rotated
//   kActivation       x                                        y
//   kGlu              gate and up [N, 2F]                      y [N, F] = act(gate) * up
//   kAdd              a, b                                     y
//   kDropout          x                                        y
//   kSelectRows       x [B * S, C], [lengths B]                y [B, C]: row `attributes.row`
//   kCrossEntropy     logits, labels                           loss; the logits become dlogits
//   kLinearLoss       x, weight, [bias], labels                loss, [dx], [dweight], [dbias]
//
// Gradients go the other way. A weight's gradient is written by the first micro-step of a window
// and added to by the later ones; another output is added to where attributes.accumulate says so.
//
//   kEmbeddingBackward     dy, ids, [type ids]               dtable, [dpositions], [dtypes]
//   kLinearBackwardInput   dy, weight                        dx
//   kLinearBackwardWeight  dy, x                             dweight, [dbias]
//   kNormBackward          dy, sum or x, gamma, [mean],      dx, [dresidual], dgamma, [dbeta],
//                          rstd, [dsum]                      [dbias]
//   kAttentionBackward     do, q, k, v, o, lse,              dq, dk, dv
//                          [key lengths], [slopes]
//   kRopeBackward          dq or dk, cos, sin                the same bytes, rotated back
//   kActivationBackward    dy, x                             dx, [dbias]
//   kGluBackward           dy, gate and up                   d(gate and up)
//   kDropoutBackward       dy                                dx
//   kSelectRowsBackward    dy, [lengths B]                   dx, zero elsewhere
//
// kEmbeddingBackward and kLinearBackwardWeight add where attributes.accumulate says so too: they
// may be the second op with the gradient of a tied weight.
//
// Scratch: kEmbeddingBackward has int32 [N], kLinearLoss [R, V] for the logits of R rows.
//
// kNorm with a residual computes sum = residual + dropout(x), y = norm(sum); without dropout,
// dresidual is absent, for dx is both. kNormBackward adds dsum, what else reads the sum owes it.
// dbias is the sum over the rows of dx, where dx is what a linear with a bias yielded owes: summed
// where it is written, it need not be read again.
// kCrossEntropy and kLinearLoss add the loss, a sum over targets, to a float32 scalar; gradients
// carry loss_scale / targets of StepScalars (engine/op_call.h).
//
// The optimizer's ops name all parameters at once:
//
//   kGradNorm   gradients …                                  norm: float32 [2], sum of squares and
//                                                            count of those not finite
//   kUpdate     norm, gradients …                            six per parameter: master or weight,
//                                                            [m], [v], [16-bit copy],
//                                                            [scales of m], [scales of v]
//
// With m and v in uint8, they are 8-bit states of blocks of 256. A step whose norm counts a value
// that is not finite changes nothing. With attributes.stochastic_rounding a bfloat16 weight without
// a master is rounded up or down by chance; attributes.stream is the first parameter's, the others'
// follow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace headroom::graph {

enum class TensorId : uint32_t {};
inline constexpr TensorId kNoTensor{0xffffffffU};
constexpr size_t Index(TensorId id) { return static_cast<size_t>(id); }

enum class OpKind : uint8_t {
  kEmbedding,
  kEmbeddingBackward,
  kLinear,
  kLinearBackwardInput,
  kLinearBackwardWeight,
  kNorm,
  kNormBackward,
  kAttention,
  kAttentionBackward,
  kRope,
  kRopeBackward,
  kActivation,
  kActivationBackward,
  kGlu,
  kGluBackward,
  kAdd,
  kDropout,
  kDropoutBackward,
  kSelectRows,
  kSelectRowsBackward,
  kCrossEntropy,
  kLinearLoss,
  kGradNorm,  // of all gradients, for clipping and overflow
  kUpdate,    // one optimizer step of all parameters
};
inline constexpr size_t kOpKindCount = 24;
std::string_view Name(OpKind kind);  // "linear", "linear_backward_weight", …
// Where among the outputs dbias is, the sum over the rows of dx; 0: the kind has none.
size_t SumsOutput(OpKind kind);

// The three classes of "Data Movement Is All You Need" (arXiv 2007.00072).
enum class OpClass : uint8_t { kContraction, kNormalisation, kElementwise };
OpClass ClassOf(OpKind kind);
std::string_view Name(OpClass op_class);

enum class ActivationKind : uint8_t {
  kGelu,
  kGeluTanh,
  kRelu,
  kSilu,
  kTanh
};  // transformers' ACT2FN
enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };
enum class OptimizerKind : uint8_t { kAdamW, kAdam, kSgd };

// Of kUpdate, for each parameter.
inline constexpr size_t kUpdateOutputs = 6;

struct OpAttributes {
  int layer = -1;  // position in the stack; -1 outside it
  // B and S of the rows N = B * S; 0 where an op has no use for them.
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t key_sequence = 0;  // kAttention over another sequence; 0: `sequence`
  // Dropout regenerates its mask from (seed, step, micro-step, stream, element).
  float dropout = 0;
  uint32_t stream = 0;
  // kNorm
  NormKind norm = NormKind::kLayerNorm;
  float eps = 1e-5F;
  // kActivation, kGlu
  ActivationKind activation = ActivationKind::kGelu;
  // kAttention, kRope
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  bool causal = false;
  float scale = 0;
  // kLinear: the weight lies as [K, M], as GPT-2's Conv1D keeps it.
  bool transposed = false;
  // kEmbedding
  int position_offset = 0;  // OPT's and RoBERTa's first position
  float embedding_scale = 1;
  int64_t padding_row = -1;  // of the table: gets no gradient, as torch.nn.Embedding's padding_idx
  int row = 0;               // kSelectRows: 0 the first; -1 the last that is not padding
  // kCrossEntropy, kLinearLoss
  int ignore_index = -100;
  float label_smoothing = 0;
  int chunks = 1;  // of rows: the logits of one chunk are alive at a time
  // Adds to its output in place of writing it.
  bool accumulate = false;
  // kUpdate
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  float weight_decay = 0;
  float momentum = 0;  // of kSgd; 0 has no m
  bool stochastic_rounding = false;

  bool operator==(const OpAttributes&) const = default;
};

}  // namespace headroom::graph
