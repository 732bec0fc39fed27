// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/check.h"
#include "predict/autograd.h"
#include "predict/op_report.h"
#include "predict/ops.h"
#include "predict/runtime.h"

namespace headroom::predict {
namespace {

int Wrap(int dim, int rank) { return dim < 0 ? dim + rank : dim; }

// A view of `x`, which keeps the base of `x` alive.
Tensor Alias(const Tensor& x, const Shape& shape, const Shape& strides) {
  Tensor view(MakeRef<TensorImpl>(x.impl()->storage, x.dtype(), shape, strides));
  view.impl()->base = x.is_view() ? x.impl()->base : x.ref();
  return view;
}

// `shape` with its -1, if any, replaced.
Shape Infer(const Tensor& x, Shape shape) {
  int64_t known = 1;
  int unknown = -1;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    if (shape[dim] == -1) {
      unknown = dim;
    } else {
      known *= shape[dim];
    }
  }
  if (unknown >= 0) shape[unknown] = known == 0 ? 0 : x.numel() / known;
  HEADROOM_CHECK(shape.NumElements() == x.numel(), "a view of another number of elements");
  return shape;
}

// computeStride of aten/src/ATen/TensorUtils.cpp: the strides under which `x` can be seen as
// `shape`, or nullopt when that needs a copy.
std::optional<Shape> ViewStrides(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0) return ContiguousStrides(shape);
  Shape strides = shape;
  int view_dim = shape.rank() - 1;
  int64_t chunk_stride = x.rank() == 0 ? 1 : x.strides()[-1];
  int64_t tensor_numel = 1;
  int64_t view_numel = 1;
  for (int dim = x.rank() - 1; dim >= 0; --dim) {
    tensor_numel *= x.size(dim);
    const bool ends_chunk =
        dim == 0 || (x.size(dim - 1) != 1 && x.strides()[dim - 1] != tensor_numel * chunk_stride);
    if (!ends_chunk) continue;
    while (view_dim >= 0 && (view_numel < tensor_numel || shape[view_dim] == 1)) {
      strides[view_dim] = view_numel * chunk_stride;
      view_numel *= shape[view_dim];
      --view_dim;
    }
    if (view_numel != tensor_numel) return std::nullopt;
    if (dim > 0) {
      chunk_stride = x.strides()[dim - 1];
      tensor_numel = 1;
      view_numel = 1;
    }
  }
  // A scalar seen with dimensions of size 1.
  for (; view_dim >= 0 && x.rank() == 0; --view_dim) strides[view_dim] = 1;
  return view_dim == -1 ? std::optional(strides) : std::nullopt;
}

Shape Swapped(Shape list, int a, int b) {
  std::swap(list[a], list[b]);
  return list;
}

// Zeros of the shape of the whole, into which the gradient of a part is copied.
Tensor GradientOfPart(const Tensor& grad, const Shape& whole) {
  Tensor zeros = Zeros(grad.runtime(), whole, grad.dtype());
  ReportMap("aten::copy_", {grad}, {grad}, 0);
  return zeros;
}

}  // namespace

Tensor Detach(const Tensor& x) {
  return Tensor(MakeRef<TensorImpl>(x.impl()->storage, x.dtype(), x.shape(), x.strides()));
}

Tensor View(const Tensor& x, const Shape& wanted) {
  const Shape shape = Infer(x, wanted);
  const std::optional<Shape> strides = ViewStrides(x, shape);
  HEADROOM_CHECK(strides.has_value(), "view size is not compatible with the tensor's strides");
  GradRecorder record(x.runtime(), "ViewBackward0", {x});
  const Shape original = x.shape();
  return record.Finish(Alias(x, shape, *strides),
                       [original](Grads& grads) -> Grads { return {Reshape(grads[0], original)}; });
}

Tensor Reshape(const Tensor& x, const Shape& wanted) {
  const Shape shape = Infer(x, wanted);
  if (ViewStrides(x, shape)) return View(x, shape);
  return View(Clone(x), shape);
}

Tensor Transpose(const Tensor& x, int a, int b) {
  const int dim0 = Wrap(a, x.rank());
  const int dim1 = Wrap(b, x.rank());
  GradRecorder record(x.runtime(), "TransposeBackward0", {x});
  return record.Finish(
      Alias(x, Swapped(x.shape(), dim0, dim1), Swapped(x.strides(), dim0, dim1)),
      [dim0, dim1](Grads& grads) -> Grads { return {Transpose(grads[0], dim0, dim1)}; });
}

Tensor T(const Tensor& x) {
  GradRecorder record(x.runtime(), "TBackward0", {x});
  return record.Finish(Alias(x, Swapped(x.shape(), 0, 1), Swapped(x.strides(), 0, 1)),
                       [](Grads& grads) -> Grads { return {T(grads[0])}; });
}

Tensor Permute(const Tensor& x, std::initializer_list<int> dims) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  std::array<int, Shape::kMaxRank> inverse{};
  int to = 0;
  for (const int from : dims) {
    shape[to] = x.size(from);
    strides[to] = x.strides()[from];
    inverse[static_cast<size_t>(Wrap(from, x.rank()))] = to++;
  }
  GradRecorder record(x.runtime(), "PermuteBackward0", {x});
  return record.Finish(Alias(x, shape, strides), [inverse](Grads& grads) -> Grads {
    Shape back = grads[0].shape();
    Shape back_strides = grads[0].strides();
    for (int dim = 0; dim < back.rank(); ++dim) {
      const int from = inverse[static_cast<size_t>(dim)];
      back[dim] = grads[0].size(from);
      back_strides[dim] = grads[0].strides()[from];
    }
    return {Alias(grads[0], back, back_strides)};
  });
}

Tensor Unsqueeze(const Tensor& x, int at) {
  const int dim = at < 0 ? at + x.rank() + 1 : at;
  Shape shape;
  Shape strides;
  for (int i = 0; i <= x.rank(); ++i) {
    if (i == dim) {
      shape.Append(1);
      strides.Append(i < x.rank() ? x.size(i) * x.strides()[i] : 1);
    }
    if (i < x.rank()) {
      shape.Append(x.size(i));
      strides.Append(x.strides()[i]);
    }
  }
  GradRecorder record(x.runtime(), "UnsqueezeBackward0", {x});
  return record.Finish(Alias(x, shape, strides),
                       [dim](Grads& grads) -> Grads { return {Squeeze(grads[0], dim)}; });
}

Tensor Squeeze(const Tensor& x, int at) {
  const int dim = Wrap(at, x.rank());
  Shape shape;
  Shape strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim && x.size(i) == 1) continue;
    shape.Append(x.size(i));
    strides.Append(x.strides()[i]);
  }
  const bool changed = shape.rank() != x.rank();
  GradRecorder record(x.runtime(), "SqueezeBackward1", {x});
  return record.Finish(Alias(x, shape, strides), [dim, changed](Grads& grads) -> Grads {
    return {changed ? Unsqueeze(grads[0], dim) : grads[0]};
  });
}

Tensor Expand(const Tensor& x, const Shape& wanted) {
  Shape shape = wanted;
  Shape strides = wanted;
  const int added = wanted.rank() - x.rank();
  for (int dim = 0; dim < wanted.rank(); ++dim) {
    const int64_t size = dim < added ? 1 : x.size(dim - added);
    const int64_t stride = dim < added ? 0 : x.strides()[dim - added];
    if (wanted[dim] == -1) shape[dim] = size;
    strides[dim] = shape[dim] == size && dim >= added ? stride : 0;
  }
  GradRecorder record(x.runtime(), "ExpandBackward0", {x});
  const Shape original = x.shape();
  return record.Finish(Alias(x, shape, strides),
                       [original](Grads& grads) -> Grads { return {SumTo(grads[0], original)}; });
}

Tensor Select(const Tensor& x, int at, int64_t) {
  const int dim = Wrap(at, x.rank());
  Shape shape;
  Shape strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    shape.Append(x.size(i));
    strides.Append(x.strides()[i]);
  }
  GradRecorder record(x.runtime(), "SelectBackward0", {x});
  const Shape whole = x.shape();
  return record.Finish(Alias(x, shape, strides), [whole](Grads& grads) -> Grads {
    return {GradientOfPart(grads[0], whole)};
  });
}

Tensor Slice(const Tensor& x, int at, int64_t start, int64_t end) {
  const int dim = Wrap(at, x.rank());
  const int64_t size = x.size(dim);
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  Shape shape = x.shape();
  shape[dim] = end - start;
  GradRecorder record(x.runtime(), "SliceBackward0", {x});
  const Shape whole = x.shape();
  return record.Finish(Alias(x, shape, x.strides()), [whole](Grads& grads) -> Grads {
    return {GradientOfPart(grads[0], whole)};
  });
}

std::vector<Tensor> Split(const Tensor& x, int64_t size, int dim) {
  std::vector<int64_t> sizes;
  for (int64_t left = x.size(dim); left > 0; left -= size) sizes.push_back(std::min(left, size));
  return SplitSizes(x, sizes, dim);
}

std::vector<Tensor> SplitSizes(const Tensor& x, std::span<const int64_t> sizes, int at) {
  const int dim = Wrap(at, x.rank());
  GradRecorder record(x.runtime(), "SplitBackward0", {x});
  std::vector<Tensor> parts;
  for (const int64_t size : sizes) {
    Shape shape = x.shape();
    shape[dim] = size;
    parts.push_back(Alias(x, shape, x.strides()));
  }
  std::vector<Tensor*> outputs;
  for (Tensor& part : parts) outputs.push_back(&part);
  // split_backward: parts whose gradient never came are zeros, and all are concatenated.
  const std::vector<int64_t> part_sizes(sizes.begin(), sizes.end());
  const Shape whole = x.shape();
  record.Finish(outputs, [part_sizes, whole, dim](Grads& grads) -> Grads {
    Tensor given;
    for (const Tensor& grad : grads) {
      if (grad.defined()) given = grad;
    }
    std::vector<Tensor> all;
    for (size_t i = 0; i < part_sizes.size(); ++i) {
      Shape shape = whole;
      shape[dim] = part_sizes[i];
      all.push_back(i < grads.size() && grads[i].defined()
                        ? grads[i]
                        : Zeros(given.runtime(), shape, given.dtype()));
    }
    return {Cat(all, dim)};
  });
  return parts;
}

Tensor RepeatInterleave(const Tensor& x, int64_t repeats, int at) {
  const int dim = Wrap(at, x.rank());
  const Tensor apart = Unsqueeze(x, dim + 1);
  Shape shape = apart.shape();
  shape[dim + 1] = repeats;
  Shape flat = x.shape();
  flat[dim] *= repeats;
  return View(Clone(Expand(apart, shape)), flat);
}

Tensor Contiguous(const Tensor& x) { return x.is_contiguous() ? x : Clone(x); }

Tensor Clone(const Tensor& x) {
  GradRecorder record(x.runtime(), "CloneBackward0", {x});
  const OpScope op(x.runtime(), "aten::clone");
  Tensor out = Empty(x.runtime(), x.shape(), x.dtype());
  ReportMap("aten::clone", {x}, {out});
  return record.Finish(std::move(out), [](Grads& grads) -> Grads { return {grads[0]}; });
}

Tensor CloneLike(const Tensor& x, const Tensor& like) {
  const OpScope op(x.runtime(), "aten::clone");
  Tensor out = EmptyStrided(x.runtime(), like.shape(), like.strides(), x.dtype());
  ReportMap("aten::clone", {x}, {out});
  return out;
}

Tensor Cat(std::span<const Tensor> tensors, int at) {
  const Tensor& first = tensors.front();
  const int dim = Wrap(at, first.rank());
  GradRecorder record(first.runtime(), "CatBackward0", tensors);
  const OpScope op(first.runtime(), "aten::cat");
  Shape shape = first.shape();
  shape[dim] = 0;
  DType dtype = first.dtype();
  std::vector<int64_t> sizes;
  for (const Tensor& tensor : tensors) {
    shape[dim] += tensor.size(dim);
    sizes.push_back(tensor.size(dim));
    dtype = PromoteTypes(dtype, tensor.dtype());
  }
  Tensor out = Empty(first.runtime(), shape, dtype);
  ReportMap("aten::cat", tensors, std::span(&out, 1));
  return record.Finish(std::move(out), [sizes, dim](Grads& grads) -> Grads {
    Grads parts;
    int64_t start = 0;
    for (const int64_t size : sizes) {
      parts.push_back(Slice(grads[0], dim, start, start + size));
      start += size;
    }
    return parts;
  });
}

}  // namespace headroom::predict
