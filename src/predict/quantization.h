// SPDX-License-Identifier: Apache-2.0
//
// QuantizedMatrix: the weight of a linear layer as bitsandbytes stores and multiplies it.
//
// Int8 keeps a byte a weight and a float a row; 4 bit keeps two weights a byte and a scale for each
// block of 64, quantised once more on request. A product needs memory of its own: 4 bit dequantises
// the whole matrix where no fused kernel takes the shape, LLM.int8() holds its int32 result.
//
//   [24576, 6144] in 4 bit: 72 MiB of nibbles, 9 MiB of scales; 576 MiB more while it multiplies in
//   fp32, the default bnb_4bit_compute_dtype
#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "model/catalogue.h"
#include "model/recipe.h"
#include "predict/tensor.h"

namespace headroom::predict {

class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;
  // x @ weight.T + bias in the dtype of `x`; an undefined bias is none.
  virtual Tensor Multiply(const Tensor& x, const Tensor& bias) const = 0;
  virtual bool is_4bit() const = 0;
  // What stands in for the parameter.
  virtual const Tensor& data() const = 0;
};

// Quantises `weight` [out, in], a tensor on the device that the caller drops afterwards. What is
// kept is allocated as weights. `dynamic_map` is the process's table for scales in 8 bit: made with
// the first weight that needs it, and kept by that weight.
std::shared_ptr<const QuantizedMatrix> Quantize(const Tensor& weight, const Quantization& how,
                                                Tensor& dynamic_map);

// Whether bitsandbytes 0.50.2 multiplies `rows` rows by a 4-bit matrix [out, in] in one kernel;
// otherwise it dequantises the matrix first. Known for compute capability 9.x; elsewhere only the
// rule for a handful of rows, so that a prediction errs on the side of the larger memory.
bool FusesGemm4bit(const Gpu& gpu, DType compute, int64_t rows, int64_t out, int64_t in);

}  // namespace headroom::predict
