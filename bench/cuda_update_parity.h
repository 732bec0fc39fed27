// SPDX-License-Identifier: Apache-2.0
//
// The part of cuda_parity that knows updates, and what a run makes of them.
#pragma once

namespace headroom::engine {

// Updates of bfloat16 weights without masters, rounded stochastically, against the CPU's: SGD with
// a rate that is a power of two to the bit; AdamW, whose float32 values differ in their last bits,
// with fewer than 1 in 500 weights elsewhere, and those beside the CPU's. And a halted update,
// which changes nothing, nor does any behind it.
void CheckUpdates();

// A loss of logits that are no number is none, wherever they lie in their row: 8 side by side that
// one thread reads before all others, in each kernel of the loss, and one of a classifier's.
void CheckLosses();

// Whole runs in float32, which the host reads a step late, against the CPU's: losses to 1e-4, and
// the step and the tensor that a run ends with.
void CheckRuns();

}  // namespace headroom::engine
