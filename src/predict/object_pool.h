// SPDX-License-Identifier: Apache-2.0
//
// ObjectPool: memory for the small objects of a run, which are made and dropped by the hundred
// thousand, mostly in the order of a stack.
//
// Each size has a list of free pieces; what is given back is what is taken next. The memory goes
// back to the system with the pool, at the end of its thread: whatever is taken on a thread is
// given back on it. Under AddressSanitizer every piece is one of malloc's, so that it sees misuse.
//
//   Take(200) -> a fresh piece of 208 bytes; Give(it); Take(208) -> the same piece
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

namespace headroom::predict {

class ObjectPool {
 public:
  ObjectPool() = default;
  ObjectPool(const ObjectPool&) = delete;
  ObjectPool& operator=(const ObjectPool&) = delete;

  static ObjectPool& OfThread() {
    thread_local ObjectPool pool;
    return pool;
  }

  void* Take(size_t bytes) {
    if (bytes > kLargest || kChecked) return ::operator new(bytes);
    Piece*& first = free_[ClassOf(bytes)];
    if (first == nullptr) return Fresh(ClassOf(bytes) * kStep);
    Piece* const piece = first;
    first = piece->next;
    return piece;
  }

  // REQUIRES: `object` came from Take(bytes) of this pool.
  void Give(void* object, size_t bytes) {
    if (bytes > kLargest || kChecked) return ::operator delete(object);
    Piece*& first = free_[ClassOf(bytes)];
    first = ::new (object) Piece{first};
  }

 private:
  struct Piece {
    Piece* next;
  };
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kChecked = true;
#else
  static constexpr bool kChecked = false;
#endif
  static constexpr size_t kStep = 16;
  static constexpr size_t kLargest = 512;
  static constexpr size_t kSlab = 64 * 1024;

  static size_t ClassOf(size_t bytes) { return (bytes + kStep - 1) / kStep; }

  void* Fresh(size_t bytes) {
    if (left_ < bytes) {
      slabs_.push_back(std::make_unique_for_overwrite<std::byte[]>(kSlab));
      next_ = slabs_.back().get();
      left_ = kSlab;
    }
    void* const piece = next_;
    next_ += bytes;
    left_ -= bytes;
    return piece;
  }

  std::array<Piece*, kLargest / kStep + 1> free_{};
  std::vector<std::unique_ptr<std::byte[]>> slabs_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

// For short vectors of such objects.
template <typename T>
struct PoolAllocator {
  using value_type = T;

  PoolAllocator() = default;
  template <typename Other>
  PoolAllocator(const PoolAllocator<Other>&) {}  // NOLINT: converts, as allocators do

  T* allocate(size_t count) {
    return static_cast<T*>(ObjectPool::OfThread().Take(count * sizeof(T)));
  }
  void deallocate(T* objects, size_t count) {
    ObjectPool::OfThread().Give(objects, count * sizeof(T));
  }
  bool operator==(const PoolAllocator&) const { return true; }
};

template <typename T>
using PoolVector = std::vector<T, PoolAllocator<T>>;

}  // namespace headroom::predict
