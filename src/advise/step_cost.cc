// SPDX-License-Identifier: Apache-2.0
//
// What is reached, measured on an H200 with PyTorch 2.11.0; docs/advice.md has the measurements.
#include "advise/step_cost.h"

#include <algorithm>
#include <string_view>

namespace headroom {
namespace {

// The matrix products of BERT-large and GPT-2 steps run at 621 to 665 TFLOP/s of the sheet's 989.
constexpr double kTensorCoreReached = 0.65;
// What is left of a step of BERT-large at batch 32 (103.3 ms) and of GPT-2 (45.3 ms) after its
// products and attention, for the traffic of all other kernels: 0.51 and 0.62 of 4.8 TB/s.
constexpr double kTrafficReached = 0.55;
// Of the 122.7 ms that BERT-large takes in float32, less what Trainer adds to a plain loop.
constexpr double kFloat32Reached = 0.7;

// Seconds of the host for a kernel of eager PyTorch, from the steps of BERT-large at batch 4, in
// which the GPU waits for the host: TF32 40.3 ms for 352 kernels from the model's Python and 699
// from the engine, bf16 44.5 ms with autocast's 829 casts beside them. What C++ launches takes 5
// us, the rest is Python's modules. An optimizer's loop has none of them; its figure is not
// measured.
constexpr double kModuleSeconds = 104e-6;
constexpr double kOptimizerSeconds = 10e-6;
constexpr double kLaunchSeconds = 5e-6;

double HostSeconds(const Op& op) {
  if (op.from_engine || std::string_view(op.name) == "aten::_to_copy") return kLaunchSeconds;
  return op.phase == "optimizer" ? kOptimizerSeconds : kModuleSeconds;
}

}  // namespace

Rates PeakRates(const Gpu& gpu, Precision precision, OpClass op_class, DType dtype) {
  Rates rates{gpu.fp32_flops, gpu.memory_bandwidth};
  if (op_class != OpClass::kContraction) return rates;
  if (IsHalf(dtype)) rates.flops = gpu.bf16_flops;
  const bool tf32 = precision == Precision::kTf32 && dtype == DType::kFloat32;
  if (tf32 && gpu.tf32_flops > 0) rates.flops = gpu.tf32_flops;
  return rates;
}

Rates ReachedRates(const Gpu& gpu, Precision precision, OpClass op_class, DType dtype) {
  Rates rates = PeakRates(gpu, precision, op_class, dtype);
  rates.flops *= rates.flops > gpu.fp32_flops ? kTensorCoreReached : kFloat32Reached;
  rates.bytes *= kTrafficReached;
  return rates;
}

double RooflineSeconds(const OpWork& work, const Rates& rates) {
  return std::max(work.flops / rates.flops, (work.read + work.written) / rates.bytes);
}

StepCost& StepCost::operator+=(const StepCost& other) {
  flops += other.flops;
  bytes += other.bytes;
  gpu_seconds += other.gpu_seconds;
  host_seconds += other.host_seconds;
  kernels += other.kernels;
  return *this;
}

StepCost StepCost::operator*(double times) const {
  return {flops * times, bytes * times, gpu_seconds * times, host_seconds * times, kernels * times};
}

double StepCost::seconds() const { return std::max(gpu_seconds, host_seconds); }

void CostMeter::OnOp(const Op& op) {
  const Rates rates = ReachedRates(gpu_, precision_, op.work.op_class, op.work.dtype);
  const StepCost cost{op.work.flops, op.work.read + op.work.written,
                      RooflineSeconds(op.work, rates), HostSeconds(op), 1};
  (op.phase == "optimizer" ? optimizer_ : micro_) += cost;
}

StepCost CostMeter::Step(int steps, int64_t played, int64_t accumulation) const {
  const double each = 1.0 / static_cast<double>(steps);
  StepCost step = micro_ * (each * static_cast<double>(accumulation) / static_cast<double>(played));
  step += optimizer_ * each;
  return step;
}

}  // namespace headroom
