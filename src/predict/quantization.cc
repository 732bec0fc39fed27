// SPDX-License-Identifier: Apache-2.0
//
// bitsandbytes 0.50.2: functional.py, nn/modules.py, autograd/_functions.py,
// backends/{cuda,default}/ops.py.
#include "predict/quantization.h"

#include <utility>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

constexpr int64_t kBlock = 64;         // weights that share a scale
constexpr int64_t kNestedBlock = 256;  // scales that share one of their own
constexpr int64_t kCodes4bit = 16;
constexpr int64_t kCodes8bit = 256;

constexpr int64_t BlocksOf(int64_t count, int64_t block) { return (count + block - 1) / block; }

// What quantising keeps is weights, and what it needs on the way temporaries.
class WeightScope {
 public:
  explicit WeightScope(Runtime& runtime) : component_(runtime.component, Component::kWeights) {}

 private:
  Scoped<Component> component_;
};

// bias.data = bias.data.to(dtype): the first call puts the cast in the parameter's place.
void CastBias(const Tensor& bias, DType dtype) {
  if (!bias.defined() || bias.dtype() == dtype) return;
  const WeightScope scope(bias.runtime());
  const Scoped no_grad(bias.runtime().grad_enabled, false);
  const Tensor cast = ToCopy(bias, dtype);
  bias.impl()->storage = cast.impl()->storage;
  bias.impl()->dtype = dtype;
}

// ---- LLM.int8() ----

// int8_vectorwise_quant: int8 rows and their scales. With a threshold it looks for outliers, of
// which there are none to be assumed: a column of them adds its fp16 values.
struct Int8Rows {
  Tensor values;
  Tensor scales;
};

Int8Rows QuantizeRows(const Tensor& x, bool looks_for_outliers) {
  Runtime& runtime = x.runtime();
  const OpScope op(runtime, "bitsandbytes::int8_vectorwise_quant");
  Int8Rows rows;
  rows.scales = Empty(runtime, {x.numel() / x.size(-1)}, DType::kFloat32);
  rows.values = Empty(runtime, x.shape(), DType::kInt8);
  if (!looks_for_outliers) return rows;
  const Scoped component(runtime.component, Component::kTemporaries);
  Tensor outliers;
  {
    const Tensor magnitudes = EmptyLike(x);
    outliers = EmptyLike(x, DType::kBool);
  }
  const Tensor any = Empty(runtime, {}, DType::kBool);
  return rows;
}

class Int8Matrix final : public QuantizedMatrix {
 public:
  Int8Matrix(Int8Rows rows, bool finds_outliers)
      : rows_(std::move(rows)), finds_outliers_(finds_outliers) {}

  // The bias is added by the kernel or in place.
  Tensor Multiply(const Tensor& x, const Tensor& bias) const override {
    Runtime& runtime = x.runtime();
    CastBias(bias, x.dtype());
    // MatMul8bitLt: an autograd function that keeps its input, as an attribute.
    GradRecorder record(runtime, "MatMul8bitLt", {x});
    Tensor flat;
    Tensor product;
    {
      const Scoped no_grad(runtime.grad_enabled, false);
      flat = Reshape(x, {-1, x.size(-1)});
      product = Product(flat, x);
    }
    if (!record.active()) return product;
    return record.Finish(std::move(product),
                         [this, flat, sizes = x.shape()](Grads& grads) -> Grads {
                           return {GradOfInput(grads[0], flat.dtype(), sizes)};
                         });
  }
  bool is_4bit() const override { return false; }
  const Tensor& data() const override { return rows_.values; }

 private:
  Tensor Product(const Tensor& flat, const Tensor& x) const {
    Runtime& runtime = x.runtime();
    Int8Rows quantized;
    {
      const Tensor half = To(flat, DType::kFloat16);
      quantized = QuantizeRows(half, finds_outliers_);
    }
    const OpScope op(runtime, "bitsandbytes::int8_scaled_mm");
    const Shape shape = {flat.size(0), rows_.values.size(0)};
    const Tensor product = Empty(runtime, shape, DType::kInt32);
    const Tensor dequantized = Empty(runtime, shape, DType::kFloat16);
    const Tensor result = To(dequantized, x.dtype());
    Shape out = x.shape();
    out[-1] = shape[1];
    return View(result, out);
  }

  // The matrix is dequantised in the input's type for the product.
  Tensor GradOfInput(const Tensor& given, DType dtype, const Shape& sizes) const {
    const Tensor grad = Contiguous(Reshape(given, {-1, given.size(-1)}));
    Tensor matrix;
    {
      matrix = EmptyLike(rows_.values, dtype);
      const Tensor scales = EmptyLike(rows_.scales);
    }
    const Tensor cast = To(grad, dtype);
    return View(Matmul(cast, matrix), sizes);
  }

  Int8Rows rows_;
  bool finds_outliers_;
};

// ---- 4 bit ----

class FourBitMatrix final : public QuantizedMatrix {
 public:
  FourBitMatrix(const Tensor& weight, const Quantization& how, Tensor& dynamic_map)
      : shape_(weight.shape()), stored_as_(weight.dtype()), compute_(how.compute_dtype) {
    Runtime& runtime = weight.runtime();
    const OpScope op(runtime, "bitsandbytes::quantize_4bit");
    scales_ = Empty(runtime, {BlocksOf(weight.numel(), kBlock)}, DType::kFloat32);
    nibbles_ = Empty(runtime, {(weight.numel() + 1) / 2, 1}, DType::kUInt8);
    code_ = Empty(runtime, {kCodes4bit}, DType::kFloat32);
    {
      // get_4bit_type divides the codes by the largest.
      const Scoped component(runtime.component, Component::kTemporaries);
      const Tensor magnitudes = EmptyLike(code_);
      const Tensor largest = Empty(runtime, {}, DType::kFloat32);
    }
    if (how.double_quant) QuantizeScales(runtime, dynamic_map);
  }

  // Linear4bit.forward: input and bias in the compute type, the result back in the input's.
  Tensor Multiply(const Tensor& x, const Tensor& bias) const override {
    const Tensor input = To(x, compute_);
    CastBias(bias, compute_);
    const Tensor result = Recorded(input, bias);
    return To(result, x.dtype());
  }
  bool is_4bit() const override { return true; }
  const Tensor& data() const override { return nibbles_; }

 private:
  // MatMul4Bit: an autograd function that saves nothing of its input, and dequantises the matrix
  // again for the gradient.
  Tensor Recorded(const Tensor& x, const Tensor& bias) const {
    Runtime& runtime = x.runtime();
    GradRecorder record(runtime, "MatMul4Bit", {x});
    Tensor product;
    {
      const Scoped no_grad(runtime.grad_enabled, false);
      product = Product(x, bias);
    }
    return record.Finish(std::move(product), [this](Grads& grads) -> Grads {
      const Tensor matrix = To(Dequantized(grads[0].runtime()), grads[0].dtype());
      return {Matmul(grads[0], matrix)};
    });
  }

  // dequantize_4bit, to the type that was quantised.
  Tensor Dequantized(Runtime& runtime) const {
    Tensor scales;
    if (nested_scales_.defined()) scales = EmptyLike(scales_, DType::kFloat32);
    return Empty(runtime, shape_, stored_as_);
  }

  // quantize_blockwise of absmax - absmax.mean(): a byte a scale, and a copy of the map of 256.
  void QuantizeScales(Runtime& runtime, Tensor& dynamic_map) {
    offset_ = Empty(runtime, {}, DType::kFloat32);
    Tensor bytes;
    {
      const Tensor centred = EmptyLike(scales_);
      if (!dynamic_map.defined()) dynamic_map = Empty(runtime, {kCodes8bit}, DType::kFloat32);
      dynamic_map_ = dynamic_map;
      nested_scales_ = Empty(runtime, {BlocksOf(scales_.numel(), kNestedBlock)}, DType::kFloat32);
      bytes = EmptyLike(scales_, DType::kUInt8);
      nested_code_ = Empty(runtime, {kCodes8bit}, DType::kFloat32);
    }
    scales_ = std::move(bytes);
  }

  Tensor Product(const Tensor& x, const Tensor& bias) const {
    Runtime& runtime = x.runtime();
    const int64_t rows = x.numel() / x.size(-1);
    if (FusesGemm4bit(runtime.platform().gpu, compute_, rows, shape_[0], shape_[1])) {
      const OpScope op(runtime, "bitsandbytes::gemm_4bit");
      const Tensor contiguous = Contiguous(x);
      Shape out = x.shape();
      out[-1] = shape_[0];
      return Empty(runtime, out, x.dtype());
    }
    // _dequant_linear_fallback
    Tensor scales;
    Tensor dequantized_scales;
    Tensor matrix;
    {
      const OpScope op(runtime, "bitsandbytes::dequantize_4bit");
      const Scoped component(runtime.component, Component::kTemporaries);
      if (nested_scales_.defined()) {
        dequantized_scales = EmptyLike(scales_, DType::kFloat32);
        scales = EmptyLike(dequantized_scales);
      }
      matrix = Empty(runtime, shape_, compute_);
    }
    return LinearOp(x, matrix, bias);
  }

  Shape shape_;
  DType stored_as_;
  DType compute_;
  Tensor nibbles_;
  Tensor scales_;
  Tensor code_;
  Tensor offset_;
  Tensor nested_scales_;
  Tensor nested_code_;
  Tensor dynamic_map_;
};

}  // namespace

std::shared_ptr<const QuantizedMatrix> Quantize(const Tensor& weight, const Quantization& how,
                                                Tensor& dynamic_map) {
  Runtime& runtime = weight.runtime();
  switch (how.kind) {
    case Quantization::Kind::kInt8: {
      // Int8Params quantises what comes from the host, and so the weight goes there and back while
      // the loader still holds it.
      const Scoped component(runtime.component, Component::kTemporaries);
      const Tensor half = Empty(runtime, weight.shape(), DType::kFloat16);
      const WeightScope scope(runtime);
      return std::make_shared<Int8Matrix>(QuantizeRows(half, false), how.int8_threshold > 0);
    }
    case Quantization::Kind::kFp4:
    case Quantization::Kind::kNf4: {
      const WeightScope scope(runtime);
      return std::make_shared<FourBitMatrix>(weight, how, dynamic_map);
    }
    case Quantization::Kind::kNone:
      break;
  }
  HEADROOM_CHECK(false, "a weight quantised as nothing");
  return nullptr;
}

// _gemm_4bit_use_custom_cuda, backends/cuda/ops.py.
bool FusesGemm4bit(const Gpu& gpu, DType compute, int64_t rows, int64_t out, int64_t in) {
  constexpr int64_t kAlwaysFused = 4;
  constexpr int64_t kNeverFused = 1536;
  constexpr int64_t kSmallMatrix = int64_t{4} << 20;
  if (in % kBlock != 0 || rows > kNeverFused) return false;
  if (rows <= kAlwaysFused) return true;
  if (compute == DType::kFloat32) return rows < 8;
  if (gpu.compute_major != 9) return false;
  const int64_t sms = gpu.multiprocessors;
  const int64_t tiles = BlocksOf(out, 64);
  if (out * in < kSmallMatrix) {
    if (in * 2 < out) return rows <= (tiles * 3 < sms ? 512 : 320);
    if (tiles * 4 <= sms) return rows <= 32;
    return tiles * 2 <= sms && rows <= 16;
  }
  if (rows < 8) {
    if (rows < 6 || tiles < 36 || tiles * 4 >= sms * 3) return true;
    return in < out || (in == out && tiles * 5 < sms * 3);
  }
  if (tiles >= sms * 3) return rows <= 64;
  if (tiles >= sms * 2) return rows <= 48;
  if (tiles >= sms) return rows <= 32;
  if (tiles < sms / 2) return false;
  if (in >= out && tiles * 4 < sms * 3) return false;
  return rows <= 16;
}

}  // namespace headroom::predict
