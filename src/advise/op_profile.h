// SPDX-License-Identifier: Apache-2.0
//
// OpProfile: one training step by what its kernels do.
//
// Kernels are added up in cells of phase x class ("Data Movement Is All You Need", see OpClass) and
// by module and kernel, where the layers of a stack count as one:
// bert.encoder.layer.*.output.dense.
#pragma once

#include <array>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "model/catalogue.h"
#include "model/recipe.h"
#include "predict/op_observer.h"

namespace headroom {

// Forward counts what brings the batch to the device, backward what checkpointing recomputes.
enum class OpPhase : uint8_t { kForward, kBackward, kOptimizer };
inline constexpr int kOpPhaseCount = 3;
std::string_view Name(OpPhase phase);

struct OpTotals {
  double flops = 0;
  double bytes = 0;
  double peak_seconds = 0;     // at the data sheet's rates
  double reached_seconds = 0;  // at the rates that such kernels reach (step_cost.h)
  double memory_seconds = 0;   // the part of peak_seconds that traffic decides
  double kernels = 0;

  OpTotals& operator+=(const OpTotals& other);
  // FLOP a byte; 0 without traffic.
  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};

struct OpGroup {
  std::string module;
  std::string name;
  OpPhase phase = OpPhase::kForward;
  OpClass op_class = OpClass::kElementwise;
  OpTotals totals;
};

class OpProfile final : public OpObserver {
 public:
  OpProfile(const Gpu& gpu, Precision precision) : gpu_(gpu), precision_(precision) {}

  void OnOp(const Op& op) override;
  // Divides what was seen by `steps`. Call once, after the run.
  void AverageOver(int steps);

  const OpTotals& Cell(OpPhase phase, OpClass op_class) const {
    return cells_[static_cast<size_t>(phase)][static_cast<size_t>(op_class)];
  }
  OpTotals Sum(OpPhase phase) const;
  OpTotals Sum(OpClass op_class) const;
  OpTotals Sum() const;
  // The groups that take longest at the data sheet's rates, the longest first.
  std::vector<OpGroup> Largest(size_t count) const;

 private:
  using Key = std::tuple<std::string, std::string, OpPhase, OpClass>;

  const Gpu gpu_;
  const Precision precision_;
  std::array<std::array<OpTotals, kOpClassCount>, kOpPhaseCount> cells_{};
  std::map<Key, OpTotals> groups_;
};

}  // namespace headroom
