// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding of bfloat16 weights that have no float32 master.
//
// An update below half a bfloat16's last place is lost by rounding to nearest: the weight stands
// still, however often it comes. Rounded up with a probability that is its distance, it arrives in
// the mean (Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015; Zamirai et
// al., "Revisiting BFloat16 Training", arXiv 2010.06192):
//
//   1.0 + 0.001    between 1 and 1.0078125: up in 12.8 % of the cases, else down
//
// The 16 bits that decide follow from a counter, as dropout's do (cpu/dropout.h): element e takes
// half e % 2, the lower one first, of word e / 2 % 4 of the counter
//
//   { e / 8, (e / 8) >> 32, step, stream }      key: the run's seed
//
// where the stream is the parameter's. The CPU, CUDA and a resumed run therefore agree.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "engine/op_call.h"

namespace headroom::engine {

// The random numbers of one parameter in one step.
struct StochasticRounding {
  uint64_t key = 0;
  uint32_t step = 0;
  uint32_t stream = 0;

  // Of the eight elements of group e / 8.
  constexpr std::array<uint32_t, 4> Counter(uint64_t group) const {
    return {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), step, stream};
  }
};

// The parameter at a position of an update.
constexpr StochasticRounding RoundingOf(const StepScalars& step, uint32_t first_stream,
                                        size_t parameter) {
  return {.key = step.seed,
          .step = static_cast<uint32_t>(step.step),
          .stream = first_stream + static_cast<uint32_t>(parameter)};
}

// The bfloat16 above or below `value`, by magnitude; what is one stays it, as infinities and values
// that are not a number do. Above with the probability (its last 16 bits) / 2^16 over uniform
// `random` < 2^16.
constexpr uint16_t RoundStochastically(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffU;
  // A payload in the lower half alone would read as infinity.
  const uint32_t special = magnitude > 0x7f800000U ? bits | 0x400000U : bits;
  return static_cast<uint16_t>((magnitude < 0x7f800000U ? bits + random : special) >> 16);
}

}  // namespace headroom::engine
