// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/gemm_openblas.h"

#include <cblas.h>

#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

CBLAS_TRANSPOSE OrderOf(const Matrix& matrix) {
  return matrix.column_stride == 1 ? CblasNoTrans : CblasTrans;
}
blasint LeadingOf(const Matrix& matrix) {
  return static_cast<blasint>(matrix.column_stride == 1 ? matrix.row_stride : matrix.column_stride);
}
const float* ValuesOf(const Matrix& matrix) { return reinterpret_cast<const float*>(matrix.data); }

}  // namespace

bool OpenBlasGemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b,
                  const Matrix& c, const GemmOptions& options) {
  if (a.dtype != DType::kFloat32 || b.dtype != DType::kFloat32 || c.dtype != DType::kFloat32) {
    return false;
  }
  // With one row or column, both strides can be 1, and BLAS would refuse the leading dimension.
  if (m == 1 || n == 1 || k == 1) return false;
  auto* values = reinterpret_cast<float*>(c.data);
  cblas_sgemm(CblasRowMajor, OrderOf(a), OrderOf(b), static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), 1.0F, ValuesOf(a), LeadingOf(a),
              ValuesOf(b), LeadingOf(b), options.add ? 1.0F : 0.0F, values,
              static_cast<blasint>(c.row_stride));
  if (options.bias != nullptr) {
    ParallelFor(m, n, [&](int64_t row) {
      Chunk buffer;
      ForEachChunk(n, [&](int64_t column, int64_t count) {
        float* to = values + row * c.row_stride + column;
        Kernels().add(to, Read(*options.bias, 0, column, count, buffer), count, to);
      });
    });
  }
  return true;
}

}  // namespace headroom::engine::cpu
