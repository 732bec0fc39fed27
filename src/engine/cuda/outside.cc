// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/outside.h"

namespace headroom::engine::cuda {
namespace {

// The process's figure behind cudaSetDevice and a first kernel.
constexpr Bytes kContext = MiB(520);
// … what our kernels, cuBLASLt and cuDNN's engines add when they are opened: 522 without cuDNN, 530
// with it.
constexpr Bytes kLibraries = MiB(10);
// … and their code, loaded when it first runs, with the captured graphs: 4 to 8 MiB for each of ten
// models of 248 to 693 ops; 39 MiB beside an arena of 91 GiB.
constexpr Bytes kGraphs = MiB(6);

}  // namespace

std::vector<ContextPart> OutsideArena() {
  return {{"CUDA context", kContext},
          {"cuBLASLt and cuDNN", kLibraries},
          {"kernels and graphs", kGraphs}};
}

}  // namespace headroom::engine::cuda
