// SPDX-License-Identifier: Apache-2.0
//
// Ref<T>: an intrusive reference count, as PyTorch's tensors and Python's objects have.
//
// When the count reaches zero the object dies at that instant, so that memory is freed at the very
// point where Python would free it. One prediction runs on one thread: the count is not atomic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "predict/object_pool.h"

namespace headroom::predict {

// Base of every counted class.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

  int32_t use_count() const { return uses_; }

  // Tensors and nodes come and go by the hundred thousand.
  static void* operator new(size_t bytes) { return ObjectPool::OfThread().Take(bytes); }
  static void operator delete(void* object, size_t bytes) {
    ObjectPool::OfThread().Give(object, bytes);
  }

 private:
  template <typename T>
  friend class Ref;
  int32_t uses_ = 0;
};

template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { Take(); }
  Ref(const Ref& other) : object_(other.object_) { Take(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Drop(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

  void Reset() { *this = Ref(); }

 private:
  void Take() {
    if (object_ != nullptr) ++object_->uses_;
  }
  void Drop() {
    if (object_ != nullptr && --object_->uses_ == 0) delete object_;
  }

  T* object_ = nullptr;
};

template <typename T, typename... Args>
Ref<T> MakeRef(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace headroom::predict
