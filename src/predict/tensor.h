// SPDX-License-Identifier: Apache-2.0
//
// Tensor: PyTorch's tensor without its data.
//
// A Tensor is a handle to a TensorImpl (dtype, sizes, strides, autograd state), which holds a
// Storage (a block of the allocator). Handles, views and saved tensors share the storage; the block
// is freed when the last of them goes.
//
//   Tensor x = Empty(runtime, {4, 512, 1024}, DType::kFloat32);   // allocates 8 MiB
//   Tensor y = View(x, {2048, 1024});                              // allocates nothing
//   x = Tensor();                                                  // frees nothing: y holds on
//   y = Tensor();                                                  // frees 8 MiB
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "ledger/ledger.h"
#include "predict/allocator.h"
#include "predict/ref.h"

namespace headroom::predict {

class Node;
class Runtime;

// One block of the allocator.
class Storage final : public RefCounted {
 public:
  // Allocates through `runtime`, attributing the block to its current component, kind, module, op.
  Storage(Runtime& runtime, Bytes bytes);
  // Without a block, until Acquire().
  struct Deferred {};
  Storage(Runtime& runtime, Bytes bytes, Deferred) : runtime_(runtime), bytes_(bytes) {}
  ~Storage() override;

  // untyped_storage().resize_(0) and back: the block goes and another comes while tensors refer to
  // the storage. Nothing happens where it is so already.
  void Release();
  void Acquire();

  Runtime& runtime() const { return runtime_; }
  Bytes bytes() const { return bytes_; }  // asked for
  // Changes what the block is reported as.
  void Reclassify(Component component, Kind kind);

 private:
  Runtime& runtime_;
  Bytes bytes_;
  AllocatorModel::Handle handle_{};
  BlockId block_{};
  bool held_ = false;
};

class TensorImpl;

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(Ref<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  TensorImpl* impl() const { return impl_.get(); }
  const Ref<TensorImpl>& ref() const { return impl_; }

  Runtime& runtime() const;
  DType dtype() const;
  const Shape& shape() const;
  const Shape& strides() const;  // in elements
  int rank() const { return shape().rank(); }
  int64_t size(int dim) const { return shape()[dim]; }
  int64_t numel() const { return shape().NumElements(); }
  Bytes bytes() const { return Bytes(numel() * ElementSize(dtype())); }
  bool is_contiguous() const;
  // Whether its elements fill their range of memory without gaps or overlaps, in any order.
  bool is_non_overlapping_and_dense() const;

  bool requires_grad() const;  // itself a leaf that asks, or computed from one
  bool is_leaf() const;
  // Whether it was made as a view of another tensor.
  bool is_view() const;

  // The accumulated gradient of a leaf; undefined when there is none.
  Tensor& grad() const;

 private:
  Ref<TensorImpl> impl_;
};

class TensorImpl final : public RefCounted {
 public:
  TensorImpl(Ref<Storage> storage, DType dtype, const Shape& shape, const Shape& strides);
  ~TensorImpl() override;

  Ref<Storage> storage;
  Shape shape;
  Shape strides;
  DType dtype;
  // The tensor this is a view of. A view keeps it alive, also outside grad mode, so that the engine
  // does not add gradients into memory that a view shows.
  Ref<TensorImpl> base;
  bool leaf_requires_grad = false;
  int32_t output_number = 0;  // which output of grad_fn this is
  Ref<Node> grad_fn;
  Tensor grad;
  // The node that stores this leaf's gradient while a graph refers to it; not counted.
  Node* accumulator = nullptr;
};

inline Runtime& Tensor::runtime() const { return impl_->storage->runtime(); }
inline DType Tensor::dtype() const { return impl_->dtype; }
inline const Shape& Tensor::shape() const { return impl_->shape; }
inline const Shape& Tensor::strides() const { return impl_->strides; }
inline bool Tensor::requires_grad() const {
  return defined() && (impl_->leaf_requires_grad || impl_->grad_fn.get() != nullptr);
}
inline bool Tensor::is_leaf() const { return impl_->grad_fn.get() == nullptr; }
inline bool Tensor::is_view() const { return impl_->base.get() != nullptr; }
inline Tensor& Tensor::grad() const { return impl_->grad; }

// Strides of a contiguous tensor of this shape.
Shape ContiguousStrides(const Shape& shape);

}  // namespace headroom::predict
