// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/vector_kernels.h"
#include "engine/half.h"

#define HEADROOM_VECTOR_LEVEL 0
#define HEADROOM_VECTOR_NAMESPACE baseline
#include "engine/cpu/vector_kernels.inc"
