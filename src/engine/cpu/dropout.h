// SPDX-License-Identifier: Apache-2.0
//
// Dropout without a mask in memory: whether an element is kept follows from a counter.
//
// Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) maps a key
// and a counter to four words; element e takes word e % 4 of the counter
//
//   { e / 4, (e / 4) >> 32 | micro-step << 16, step, stream }      key: the run's seed
//
// and is kept where the word is at least rate * 2^32. Forward, backward, recomputation and a
// resumed run therefore agree, on the CPU and on CUDA.
#pragma once

#include <array>
#include <cstdint>

#include "engine/op_call.h"

namespace headroom::engine {

// The four words of one counter.
constexpr std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, uint64_t key) {
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

struct DropoutMask {
  uint64_t key = 0;
  uint32_t micro_step = 0;
  uint32_t step = 0;
  uint32_t stream = 0;
  uint32_t threshold = 0;  // words below it drop
  float scale = 1;         // of what is kept: 1 / (1 - rate)

  // Nothing is dropped.
  bool empty() const { return threshold == 0; }
  // The four elements of group e / 4.
  constexpr std::array<uint32_t, 4> Counter(uint64_t group) const {
    return {static_cast<uint32_t>(group),
            static_cast<uint32_t>((group >> 32) & 0xffffU) | (micro_step << 16), step, stream};
  }
  // What element e is multiplied with: 0 or `scale`.
  constexpr float Factor(uint64_t element) const {
    return Philox(Counter(element / 4), key)[element % 4] >= threshold ? scale : 0.0F;
  }
};

// The mask of an op; empty in evaluation and at rate 0. REQUIRES: 0 <= rate < 1.
DropoutMask MaskOf(const OpCall& call);

}  // namespace headroom::engine
