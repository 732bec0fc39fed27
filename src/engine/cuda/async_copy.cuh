// SPDX-License-Identifier: Apache-2.0
//
// Copies from global into shared memory that run while the thread goes on (cp.async, since Ampere).
// They end in groups, in the order in which their thread committed them; another thread sees them
// behind a barrier that follows the wait.
#pragma once

#include <cstdint>

namespace headroom::engine::cuda {

__device__ inline uint32_t SharedAddress(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// 16 bytes to a shared-memory address, or as many zeroes.
__device__ inline void CopyPiece(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
__device__ inline void Commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// For all groups but the last N.
template <int N>
__device__ void WaitFor() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace headroom::engine::cuda
