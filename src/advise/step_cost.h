// SPDX-License-Identifier: Apache-2.0
//
// StepCost: how long a training step takes, by its kernels.
//
// A kernel takes as long as its arithmetic or its traffic needs, whichever is longer (the
// roofline), at the fraction of the data sheet's rates that such kernels reach. The step takes as
// long as its kernels, or as long as the host needs to launch them. It is an estimate: it serves to
// compare two recipes on one GPU, and says so wherever it is shown.
//
//   addmm, bf16, 69 GFLOP, 60 MB on an H200     max(69e9 / 643e12, 60e6 / 2.6e12) = 0.11 ms
#pragma once

#include "model/catalogue.h"
#include "model/recipe.h"
#include "predict/op_observer.h"

namespace headroom {

// The most a kernel can do in a second.
struct Rates {
  double flops = 0;
  double bytes = 0;
};

// The data sheet's rates of `gpu` for a kernel of this class on operands of this dtype; float32
// products use the tensor cores under Precision::kTf32 only.
Rates PeakRates(const Gpu& gpu, Precision precision, OpClass op_class, DType dtype);
// What kernels reach of them.
Rates ReachedRates(const Gpu& gpu, Precision precision, OpClass op_class, DType dtype);
// The longer of arithmetic and traffic.
double RooflineSeconds(const OpWork& work, const Rates& rates);

struct StepCost {
  double flops = 0;
  double bytes = 0;
  double gpu_seconds = 0;   // at the rates that are reached
  double host_seconds = 0;  // to launch the kernels, eagerly
  double kernels = 0;

  StepCost& operator+=(const StepCost& other);
  StepCost operator*(double times) const;
  // The GPU's time, or the host's where it cannot launch as fast.
  double seconds() const;
};

// Adds up a run: what every forward and backward costs, and what an optimizer step does.
class CostMeter final : public OpObserver {
 public:
  CostMeter(const Gpu& gpu, Precision precision) : gpu_(gpu), precision_(precision) {}

  void OnOp(const Op& op) override;

  // One step of `accumulation` forward passes, from a run of `steps` with `played` each.
  StepCost Step(int steps, int64_t played, int64_t accumulation) const;

 private:
  const Gpu gpu_;
  const Precision precision_;
  StepCost micro_;      // forward, backward and data, over the whole run
  StepCost optimizer_;  // likewise
};

}  // namespace headroom
