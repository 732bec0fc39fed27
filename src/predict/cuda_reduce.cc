// SPDX-License-Identifier: Apache-2.0
//
// setReduceConfig and ReduceConfig of aten/src/ATen/native/cuda/Reduce.cuh, PyTorch 2.11.0, checked
// against the buffers in recorded allocation traces.
#include "predict/cuda_reduce.h"

#include <algorithm>
#include <bit>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int64_t kMaxThreads = 512;  // MAX_NUM_THREADS
constexpr int64_t kWarpSize = 32;
constexpr int64_t kVectorSize = 4;            // vt0 and output vector size
constexpr int64_t kMinValuesPerThread = 16;   // min_values_per_thread
constexpr int64_t kMaxValuesPerThread = 256;  // max_values_per_thread

constexpr int64_t DivUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t LastPowerOf2(int64_t n) {
  return n <= 1 ? 1 : static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

struct Dim {
  int64_t size;
  int64_t stride;
};

// Dimensions of size 1 dropped, ordered by stride and merged where they are contiguous, as
// TensorIterator does.
std::vector<Dim> Coalesce(std::vector<Dim> dims) {
  std::erase_if(dims, [](const Dim& dim) { return dim.size == 1; });
  std::stable_sort(dims.begin(), dims.end(),
                   [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  std::vector<Dim> merged;
  for (const Dim& dim : dims) {
    if (!merged.empty() && merged.back().stride * merged.back().size == dim.stride) {
      merged.back().size *= dim.size;
    } else {
      merged.push_back(dim);
    }
  }
  return merged;
}

int64_t Product(const std::vector<Dim>& dims) {
  int64_t product = 1;
  for (const Dim& dim : dims) product *= dim.size;
  return product;
}

// get_output_vec_size: how many neighbouring outputs one load brings.
int64_t OutputVectorSize(const std::vector<Dim>& reduced, const std::vector<Dim>& kept) {
  int64_t size = kVectorSize;
  const auto divide = [&](int64_t n) {
    while (n % size != 0) size /= 2;
  };
  divide(kept[0].size);
  for (const Dim& dim : reduced) divide(dim.stride);
  for (size_t i = 1; i < kept.size(); ++i) divide(kept[i].stride);
  return size;
}

}  // namespace

int MaxThreadsPerMultiprocessor(const Gpu& gpu) {
  // CUDA C++ Programming Guide 13.0, "Technical Specifications per Compute Capability".
  const int capability = gpu.compute_major * 10 + gpu.compute_minor;
  if (capability == 75) return 1024;
  if (capability == 86 || capability == 87 || capability == 89) return 1536;
  if (gpu.compute_major >= 11) return 1536;
  return 2048;
}

ReductionScratch PlanReduction(const Tensor& input, std::span<const int> dims,
                               int64_t accumulator_size, const Gpu& gpu) {
  std::vector<Dim> reduced;
  std::vector<Dim> kept;
  for (int dim = 0; dim < input.rank(); ++dim) {
    const bool is_reduced = std::find(dims.begin(), dims.end(), dim) != dims.end();
    (is_reduced ? reduced : kept).push_back({input.size(dim), input.strides()[dim]});
  }
  reduced = Coalesce(reduced);
  kept = Coalesce(kept);
  const int64_t outputs = Product(kept);
  const int64_t inputs = Product(reduced);
  if (outputs == 0 || inputs <= 1) return {};

  const bool along_fastest = kept.empty() || reduced[0].stride < kept[0].stride;
  int64_t dim0 = along_fastest ? inputs : outputs;
  const int64_t dim1 = along_fastest ? outputs : inputs;
  int64_t output_vector = 1;
  if ((along_fastest ? reduced[0].stride : kept[0].stride) == 1) {
    if (along_fastest && dim0 > 128 && kept.empty() && reduced.size() == 1) {
      dim0 /= kVectorSize;
    } else if (!along_fastest) {
      output_vector = OutputVectorSize(reduced, kept);
      dim0 /= output_vector;
    }
  }

  // set_block_dimension
  const int64_t most = kMaxThreads / output_vector;
  const int64_t width0 = dim0 < most ? LastPowerOf2(dim0) : most;
  const int64_t height0 = dim1 < most ? LastPowerOf2(dim1) : most;
  int64_t width = std::min(width0, kWarpSize);
  const int64_t height = std::min(height0, most / width);
  width = std::min(width0, most / height);

  int64_t step_input = 1;
  int64_t step_output = 1;
  (along_fastest ? step_input : step_output) *= width;
  const auto values_per_thread = [&] { return DivUp(inputs, step_input); };
  const bool across_warps = values_per_thread() >= std::min(height * 16, kMaxValuesPerThread);
  (across_warps ? step_input : step_output) *= height;

  const int64_t grid = DivUp(outputs / output_vector, step_output);
  const int64_t target_grid =
      gpu.multiprocessors * (MaxThreadsPerMultiprocessor(gpu) / (width * height));
  if (!across_warps || values_per_thread() < kMaxValuesPerThread || grid > target_grid) return {};
  const int64_t blocks =
      std::max(std::min(DivUp(target_grid, grid), DivUp(values_per_thread(), kMinValuesPerThread)),
               DivUp(values_per_thread(), kMaxValuesPerThread));
  if (blocks <= 1) return {};
  int64_t buffer = accumulator_size * outputs * blocks;
  if (!along_fastest) buffer *= width * output_vector;
  return {buffer, static_cast<int64_t>(sizeof(int32_t)) * grid};
}

}  // namespace headroom::predict
