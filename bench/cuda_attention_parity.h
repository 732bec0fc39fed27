// SPDX-License-Identifier: Apache-2.0
//
// The part of cuda_parity that knows cuDNN.
#pragma once

#include <string>

#include "engine/cuda/cuda_backend.h"

namespace headroom::engine {

// Of cuda_parity.cc: counts and prints what is not good.
void Check(bool good, const std::string& what);

// Whether cuDNN can be opened here; says so once when it cannot.
bool HasCudnn();
// Prints which attention ops cuDNN runs; it should run all of these.
void CheckServed(const std::string& name, const CudaExecutor& cuda);
// Attention alone, forward and backward, against float64, with the mask of dropout read from the
// output for values that are rows of the unit matrix. The rate of the mask, its change with seed,
// step, micro-step, head and sequence, and that equal runs have equal bits.
void CheckCudnnAttention();

}  // namespace headroom::engine
