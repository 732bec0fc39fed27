// SPDX-License-Identifier: Apache-2.0
//
// The part of NVML's binary interface that is used here, written from its documentation (NVML API
// reference, driver 580). Names are NVML's, so that a reader can look them up.
#pragma once

#include <cstdint>

namespace headroom::observe::nvml_abi {

using Device = void*;
using Return = int;

constexpr Return kSuccess = 0;
constexpr Return kInvalidArgument = 2;
constexpr Return kNotSupported = 3;
constexpr Return kNoPermission = 4;
constexpr Return kNotFound = 6;
constexpr Return kInsufficientSize = 7;
constexpr Return kDriverNotLoaded = 9;
constexpr Return kFunctionNotFound = 13;
constexpr Return kGpuIsLost = 15;

constexpr unsigned kNameSize = 96;
constexpr uint64_t kNotAvailable = ~uint64_t{0};  // NVML_VALUE_NOT_AVAILABLE

struct Memory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

struct MemoryV2 {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total;
  unsigned long long reserved;
  unsigned long long free;
  unsigned long long used;
};
constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2U << 24;

struct ProcessInfo {  // nvmlProcessInfo_t, of the _v2 and _v3 functions
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance;
  unsigned compute_instance;
};
constexpr unsigned kNoInstance = ~0U;

struct ProcessInfoV1 {  // nvmlProcessInfo_v1_t
  unsigned pid;
  unsigned long long used_gpu_memory;
};

static_assert(sizeof(MemoryV2) == 40 && sizeof(ProcessInfo) == 24 && sizeof(ProcessInfoV1) == 16);

}  // namespace headroom::observe::nvml_abi
