// SPDX-License-Identifier: Apache-2.0
//
// OpenBLAS for float32 products, where the build has it (HEADROOM_OPENBLAS). Its results may differ
// with the number of threads.
#pragma once

#include "engine/cpu/gemm.h"

namespace headroom::engine::cpu {

// True if it has computed the product; false if the operands are not all float32.
#if defined(HEADROOM_HAS_OPENBLAS)
bool OpenBlasGemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                  const Matrix& c, const GemmOptions& options);
#else
inline bool OpenBlasGemm(int64_t, int64_t, int64_t, const Matrix&, const Matrix&, const Matrix&,
                         const GemmOptions&) {
  return false;
}
#endif

}  // namespace headroom::engine::cpu
