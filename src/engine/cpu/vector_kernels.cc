// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/vector_kernels.h"

#include <array>

#include "base/check.h"

namespace headroom::engine::cpu {

namespace baseline {
extern const VectorKernels kKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const VectorKernels kKernels;
}
namespace avx512 {
extern const VectorKernels kKernels;
}
#endif

namespace {

constexpr std::array kLevels = {VectorLevel::kBaseline, VectorLevel::kAvx2, VectorLevel::kAvx512};

size_t CountSupported() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c")) {
    return 1;
  }
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
             ? 3
             : 2;
#else
  return 1;
#endif
}

const VectorKernels& KernelsOf(VectorLevel level) {
#if defined(__x86_64__)
  if (level == VectorLevel::kAvx2) return avx2::kKernels;
  if (level == VectorLevel::kAvx512) return avx512::kKernels;
#endif
  HEADROOM_CHECK(level == VectorLevel::kBaseline, "no kernels of this level");
  return baseline::kKernels;
}

const VectorKernels*& Chosen() {
  static const VectorKernels* chosen = &KernelsOf(VectorLevels().back());
  return chosen;
}

}  // namespace

std::span<const VectorLevel> VectorLevels() {
  static const size_t count = CountSupported();
  return std::span(kLevels).first(count);
}

const VectorKernels& Kernels() { return *Chosen(); }

void UseVectorLevel(VectorLevel level) { Chosen() = &KernelsOf(level); }

}  // namespace headroom::engine::cpu
