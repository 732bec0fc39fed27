// SPDX-License-Identifier: Apache-2.0
//
// Dropout without a mask in memory: whether an element is kept follows from a counter.
//
// Philox 4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011) maps a key
// and a counter to four words, which serve eight elements: element e takes half (e / 4) % 2, from
// below, of word e % 4 of the counter
//
//   { e / 8, (e / 8) >> 32 | micro-step << 16, step, stream }      key: the run's seed
//
// and is kept where those 16 bits are at least rate * 2^16. The rate is rounded to that, and the
// factor of what is kept follows from the rounded one. Forward, backward, recomputation and a
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
  uint32_t threshold = 0;  // 16 bits below it drop
  float scale = 1;         // of what is kept: 1 / (1 - threshold / 2^16)

  // Nothing is dropped.
  bool empty() const { return threshold == 0; }
  // The eight elements of group e / 8.
  constexpr std::array<uint32_t, 4> Counter(uint64_t group) const {
    return {static_cast<uint32_t>(group),
            static_cast<uint32_t>((group >> 32) & 0xffffU) | (micro_step << 16), step, stream};
  }
  // What element e is multiplied with: 0 or `scale`.
  constexpr float Factor(uint64_t element) const {
    return Half(Philox(Counter(element / 8), key)[element % 4], element) >= threshold ? scale
                                                                                      : 0.0F;
  }
  // Of the word that the element shares.
  static constexpr uint32_t Half(uint32_t word, uint64_t element) {
    return element / 4 % 2 == 0 ? word & 0xffffU : word >> 16;
  }
};

// What of 2^16 drops at a rate in [0, 1); at least one is kept.
constexpr uint32_t DropThreshold(float rate) {
  const auto nearest = static_cast<uint32_t>(static_cast<double>(rate) * 0x1p16 + 0.5);
  return nearest < 0xffffU ? nearest : 0xffffU;
}
constexpr float DropScale(uint32_t threshold) {
  return 0x1p16F / (0x1p16F - static_cast<float>(threshold));
}

// The mask of an op; empty in evaluation and at rate 0. REQUIRES: 0 <= rate < 1.
DropoutMask MaskOf(const OpCall& call);

}  // namespace headroom::engine
