// SPDX-License-Identifier: Apache-2.0
//
// The flags stand here and not on the command line: there, the inline functions of the standard
// library would be compiled with them too, and the linker may keep those for every caller.
#include <immintrin.h>

#include "engine/cpu/vector_kernels.h"
#include "engine/half.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define HEADROOM_VECTOR_LEVEL 1
#define HEADROOM_VECTOR_NAMESPACE avx2
#include "engine/cpu/vector_kernels.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
