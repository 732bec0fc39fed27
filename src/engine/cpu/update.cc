// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "engine/cpu/block_quantiser.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"
#include "engine/stochastic_rounding.h"

namespace headroom::engine::cpu {
namespace {

// A multiple of the chunk and of the quantised block.
constexpr int64_t kSegment = 1 << 14;

// The operands of one parameter, as rows of their own.
struct Parameter {
  TensorView gradient, weight, m, v, copy, m_scales, v_scales;
  // Of a 16-bit weight that has no master.
  std::optional<StochasticRounding> rounding;

  Parameter(const OpCall& call, size_t index) {
    const auto output = [&](size_t i) {
      return Flat(Operand(call.outputs, graph::kUpdateOutputs * index + i));
    };
    gradient = Flat(call.inputs[index + 1]);
    weight = output(0);
    m = output(1);
    v = output(2);
    copy = output(3);
    m_scales = output(4);
    v_scales = output(5);
    if (call.attributes.stochastic_rounding && weight.dtype == DType::kBFloat16) {
      rounding = RoundingOf(call.step, call.attributes.stream, index);
    }
  }

  static TensorView Flat(TensorView tensor) {
    tensor.shape = Shape{tensor.shape.NumElements()};
    tensor.row_stride = 0;
    return tensor;
  }
  int64_t size() const { return gradient.shape.NumElements(); }
};

// Gradients carry the loss scale; torch.nn.utils.clip_grad_norm_ of PyTorch 2.11 adds 1e-6.
float GradientScale(const OpCall& call, float squares) {
  const float unscale = 1.0F / call.step.loss_scale;
  if (call.step.max_grad_norm <= 0) return unscale;
  const float norm = std::sqrt(squares) * unscale;
  return unscale * std::min(1.0F, call.step.max_grad_norm / (norm + 1e-6F));
}

AdamFactors FactorsOf(const OpCall& call, float gradient_scale) {
  const StepScalars& step = call.step;
  const auto steps = static_cast<double>(step.step - step.skipped);
  const double correction1 = 1 - std::pow(static_cast<double>(step.beta1), steps);
  const double correction2 = 1 - std::pow(static_cast<double>(step.beta2), steps);
  const float decay = call.attributes.weight_decay;
  const bool decoupled = call.attributes.optimizer == graph::OptimizerKind::kAdamW;
  return {.gradient_scale = gradient_scale,
          .l2 = decoupled ? 0.0F : decay,
          .decay = decoupled ? 1.0F - step.learning_rate * decay : 1.0F,
          .beta1 = step.beta1,
          .beta2 = step.beta2,
          .step_size = static_cast<float>(static_cast<double>(step.learning_rate) / correction1),
          .inverse_correction = static_cast<float>(1 / std::sqrt(correction2)),
          .eps = step.adam_eps};
}

// One chunk of a tensor that is read, changed and written back.
class Changed {
 public:
  Changed(const TensorView& tensor, int64_t start, int64_t n)
      : tensor_(tensor), start_(start), n_(n), values_(Target(tensor, 0, start, buffer_)) {
    Read(tensor, 0, start, n, buffer_);
  }
  float* values() { return values_; }
  void WriteTo(const TensorView& tensor) const {
    if (tensor) Write(tensor, 0, start_, n_, values_);
  }
  void WriteBack() const { WriteTo(tensor_); }
  // Where this is a parameter's weight: to it, and to its 16-bit copy.
  void WriteWeight(const Parameter& parameter) const {
    if (parameter.rounding) {
      Kernels().round_stochastically(*parameter.rounding, static_cast<uint64_t>(start_), values_,
                                     n_, Address(tensor_, 0, start_));
    } else {
      WriteBack();
    }
    WriteTo(parameter.copy);
  }

 private:
  const TensorView& tensor_;
  int64_t start_;
  int64_t n_;
  Chunk buffer_;
  float* values_;
};

void AdamChunk(const AdamFactors& factors, const Parameter& parameter, int64_t start, int64_t n) {
  Chunk gradient;
  Changed weight(parameter.weight, start, n);
  Changed m(parameter.m, start, n);
  Changed v(parameter.v, start, n);
  Kernels().adam(factors, Read(parameter.gradient, 0, start, n, gradient), n, weight.values(),
                 m.values(), v.values());
  m.WriteBack();
  v.WriteBack();
  weight.WriteWeight(parameter);
}

// As kOptimizerStatic8bit2StateBlockwise of bitsandbytes (csrc/kernels.cu at 95f9af3): the weight
// sees the moments before they are quantised, and decays after its step.
void QuantisedAdamBlock(AdamFactors factors, const Parameter& parameter, int64_t start, int64_t n) {
  const int64_t block = start / kQuantisedBlock;
  uint8_t* m_codes = parameter.m.As<uint8_t>() + start;
  uint8_t* v_codes = parameter.v.As<uint8_t>() + start;
  float& m_scale = parameter.m_scales.As<float>()[block];
  float& v_scale = parameter.v_scales.As<float>()[block];
  alignas(64) float m[kQuantisedBlock];
  alignas(64) float v[kQuantisedBlock];
  BlockQuantiser::Signed().Load(m_codes, m_scale, n, m);
  BlockQuantiser::Unsigned().Load(v_codes, v_scale, n, v);
  const float decay = std::exchange(factors.decay, 1.0F);
  Chunk gradient;
  Changed weight(parameter.weight, start, n);
  Kernels().adam(factors, Read(parameter.gradient, 0, start, n, gradient), n, weight.values(), m,
                 v);
  if (decay != 1.0F) Kernels().scale(weight.values(), decay, n, weight.values());
  weight.WriteWeight(parameter);
  m_scale = BlockQuantiser::Signed().Store(m, n, m_codes);
  v_scale = BlockQuantiser::Unsigned().Store(v, n, v_codes);
}

// torch.optim.SGD of PyTorch 2.11 without dampening; a momentum buffer starts at 0.
void SgdChunk(const OpCall& call, float gradient_scale, const Parameter& parameter, int64_t start,
              int64_t n) {
  Chunk buffer;
  Chunk gradient;
  Kernels().scale(Read(parameter.gradient, 0, start, n, buffer), gradient_scale, n,
                  gradient.values);
  Changed weight(parameter.weight, start, n);
  Kernels().add_scaled(weight.values(), call.attributes.weight_decay, n, gradient.values);
  const float* direction = gradient.values;
  if (parameter.m) {
    Changed m(parameter.m, start, n);
    Kernels().scale(m.values(), call.attributes.momentum, n, m.values());
    Kernels().add(m.values(), gradient.values, n, m.values());
    std::copy_n(m.values(), n, gradient.values);
    m.WriteBack();
  }
  Kernels().add_scaled(direction, -call.step.learning_rate, n, weight.values());
  weight.WriteWeight(parameter);
}

void UpdateSegment(const OpCall& call, const AdamFactors& factors, const Parameter& parameter,
                   int64_t start, int64_t end) {
  const bool sgd = call.attributes.optimizer == graph::OptimizerKind::kSgd;
  const bool quantised = !sgd && parameter.m.dtype == DType::kUInt8;
  const int64_t length = quantised ? kQuantisedBlock : kChunk;
  for (int64_t i = start; i < end; i += length) {
    const int64_t n = std::min(length, end - i);
    if (sgd) {
      SgdChunk(call, factors.gradient_scale, parameter, i, n);
    } else if (quantised) {
      QuantisedAdamBlock(factors, parameter, i, n);
    } else {
      AdamChunk(factors, parameter, i, n);
    }
  }
}

}  // namespace

void RunUpdate(const OpCall& call) {
  const float* norm = Operand(call.inputs, 0).As<float>();
  HEADROOM_CHECK(norm != nullptr, "an update without the norm of its gradients");
  HEADROOM_CHECK(call.outputs.size() == graph::kUpdateOutputs * (call.inputs.size() - 1),
                 "an update with other outputs than six for each parameter");
  if (norm[1] > 0) return;
  const AdamFactors factors = FactorsOf(call, GradientScale(call, norm[0]));
  for (size_t index = 0; index + 1 < call.inputs.size(); ++index) {
    const Parameter parameter(call, index);
    const int64_t n = parameter.size();
    ParallelFor((n + kSegment - 1) / kSegment, 8 * kSegment, [&](int64_t segment) {
      const int64_t start = segment * kSegment;
      UpdateSegment(call, factors, parameter, start, std::min(n, start + kSegment));
    });
  }
}

}  // namespace headroom::engine::cpu
