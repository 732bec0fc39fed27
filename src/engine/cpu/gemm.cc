// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "engine/cpu/gemm_openblas.h"
#include "engine/cpu/operands.h"
#include "engine/cpu/parallel.h"

namespace headroom::engine::cpu {
namespace {

// A block of a and one of b stay in a core's second-level cache together with what they yield.
constexpr int64_t kBlockRows = 1344;     // 96 panels of 14, 224 of 6, 336 of 4
constexpr int64_t kBlockColumns = 1024;  // 32 panels of 32
// Rows of sums lie apart by more than a power of two: those would fall into the same cache sets.
constexpr int64_t kSumStride = kBlockColumns + 32;
// What one job computes: small enough that two threads end together.
constexpr int64_t kJobPanels = 4;
constexpr int64_t kJobColumns = 128;
// Panels of a are 16 floats wide for 14 rows, 8 for 6, or 4 for 4.
constexpr int64_t kLeftSize = kBlockRows / 6 * 8 * kGemmDepth;

struct alignas(64) Buffers {
  float left[kLeftSize];
  float right[kBlockColumns * kGemmDepth];
  float sums[kBlockRows * kSumStride];  // of results that are not float32
};

// One block of the product: rows and columns of c, and a slice of k.
struct Block {
  int64_t row, rows;
  int64_t column, columns;
  int64_t depth_start, depth;
};

class Multiplication {
 public:
  Multiplication(const Matrix& a, const Matrix& b, const Matrix& c, int64_t k, GemmOptions options)
      : a_(a), b_(b), c_(c), k_(k), options_(options) {}

  void Run(const Block& block) {
    Pack(block);
    const int64_t rows_per_job = kJobPanels * kernels_.tile_rows;
    const int64_t row_jobs = (block.rows + rows_per_job - 1) / rows_per_job;
    const int64_t column_jobs = (block.columns + kJobColumns - 1) / kJobColumns;
    const int64_t work = block.rows * block.columns * block.depth / (row_jobs * column_jobs) / 16;
    ParallelForShares(row_jobs * column_jobs, work, [&](int64_t job) {
      const int64_t row = job / column_jobs * rows_per_job;
      const int64_t column = job % column_jobs * kJobColumns;
      const int64_t rows = std::min(rows_per_job, block.rows - row);
      const int64_t columns = std::min(kJobColumns, block.columns - column);
      MultiplyTiles(block, row, rows, column, columns);
      if (block.depth_start + block.depth == k_) Finish(block, row, rows, column, columns);
    });
  }

 private:
  void Pack(const Block& block) {
    const int64_t left_panels = (block.rows + kernels_.tile_rows - 1) / kernels_.tile_rows;
    const int64_t right_panels =
        (block.columns + kernels_.tile_columns - 1) / kernels_.tile_columns;
    const int64_t work = block.depth * kernels_.tile_columns;
    // Whoever multiplies with rows of a has packed them.
    ParallelForShares(left_panels, work, [&](int64_t panel) { PackLeft(block, panel); });
    ParallelForShares(right_panels, work, [&](int64_t panel) { PackRight(block, panel); });
  }

  void PackLeft(const Block& block, int64_t panel) {
    const int64_t row = block.row + panel * kernels_.tile_rows;
    const int64_t offset = row * a_.row_stride + block.depth_start * a_.column_stride;
    kernels_.pack(a_.data + offset * ElementSize(a_.dtype), a_.dtype, a_.row_stride,
                  a_.column_stride, block.row + block.rows - row, block.depth, LeftPanel(panel),
                  kernels_.lanes);
  }

  void PackRight(const Block& block, int64_t panel) {
    float* to = RightPanel(panel);
    for (int64_t part = 0; part < kernels_.tile_columns; part += kernels_.lanes) {
      const int64_t column = block.column + panel * kernels_.tile_columns + part;
      const int64_t offset = column * b_.column_stride + block.depth_start * b_.row_stride;
      // Past the edge the panel is zero.
      const int64_t columns = std::max<int64_t>(0, block.column + block.columns - column);
      const int64_t start = columns == 0 ? 0 : offset;
      kernels_.pack(b_.data + start * ElementSize(b_.dtype), b_.dtype, b_.column_stride,
                    b_.row_stride, columns, block.depth, to + part, kernels_.tile_columns);
    }
  }

  void MultiplyTiles(const Block& block, int64_t row, int64_t rows, int64_t column,
                     int64_t columns) {
    const bool add = block.depth_start > 0 || (InPlace() && options_.add);
    for (int64_t j = 0; j < columns; j += kernels_.tile_columns) {
      const float* right = RightPanel((column + j) / kernels_.tile_columns);
      for (int64_t i = 0; i < rows; i += kernels_.tile_rows) {
        kernels_.multiply_panels(block.depth, LeftPanel((row + i) / kernels_.tile_rows), right,
                                 Sums(block, row + i, column + j), SumStride(),
                                 std::min<int64_t>(rows - i, kernels_.tile_rows),
                                 std::min<int64_t>(columns - j, kernels_.tile_columns), add);
      }
    }
  }

  // The bias, and the result's own type.
  void Finish(const Block& block, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    if (InPlace() && options_.bias == nullptr) return;
    Chunk bias_buffer;
    const float* bias = options_.bias == nullptr
                            ? nullptr
                            : Read(*options_.bias, 0, block.column + column, columns, bias_buffer);
    const TensorView c{c_.data, c_.dtype, Shape{1, 1}, c_.row_stride};
    for (int64_t i = row; i < row + rows; ++i) {
      float* sums = Sums(block, i, column);
      if (bias != nullptr) kernels_.add(sums, bias, columns, sums);
      if (!InPlace()) {
        WriteOrAdd(c, block.row + i, block.column + column, columns, sums, options_.add);
      }
    }
  }

  bool InPlace() const { return c_.dtype == DType::kFloat32; }
  float* Sums(const Block& block, int64_t row, int64_t column) {
    if (!InPlace()) return buffers_.sums + row * kSumStride + column;
    return reinterpret_cast<float*>(c_.data) + (block.row + row) * c_.row_stride + block.column +
           column;
  }
  int64_t SumStride() const { return InPlace() ? c_.row_stride : kSumStride; }
  float* LeftPanel(int64_t panel) { return buffers_.left + panel * kernels_.lanes * kGemmDepth; }
  float* RightPanel(int64_t panel) {
    return buffers_.right + panel * kernels_.tile_columns * kGemmDepth;
  }

  const Matrix a_;
  const Matrix b_;
  const Matrix c_;
  const int64_t k_;
  const GemmOptions options_;
  const VectorKernels& kernels_ = Kernels();
  // The calling thread's, shared with those that help it.
  Buffers& buffers_ = ThreadBuffers<Buffers>();
};

// Blocks of about equal size: a last one of a few rows would pack all of b for little work.
int64_t BlockSize(int64_t total, int64_t most, int64_t unit) {
  const int64_t blocks = (total + most - 1) / most;
  const int64_t each = (total + blocks - 1) / blocks;
  return std::min(most, (each + unit - 1) / unit * unit);
}

}  // namespace

void Gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, const Matrix& c,
          GemmOptions options) {
  HEADROOM_CHECK(k > 0 && c.column_stride == 1, "a product without terms or a transposed result");
  if (m == 0 || n == 0) return;
  if (OpenBlasGemm(m, n, k, a, b, c, options)) return;
  Multiplication product(a, b, c, k, options);
  const int64_t rows = BlockSize(m, kBlockRows, kJobPanels * Kernels().tile_rows);
  const int64_t columns = BlockSize(n, kBlockColumns, kJobColumns);
  for (int64_t column = 0; column < n; column += columns) {
    for (int64_t row = 0; row < m; row += rows) {
      for (int64_t depth = 0; depth < k; depth += kGemmDepth) {
        product.Run({row, std::min(rows, m - row), column, std::min(columns, n - column), depth,
                     std::min(kGemmDepth, k - depth)});
      }
    }
  }
}

}  // namespace headroom::engine::cpu
