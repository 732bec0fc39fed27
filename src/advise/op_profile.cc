// SPDX-License-Identifier: Apache-2.0
#include "advise/op_profile.h"

#include <algorithm>
#include <functional>

#include "advise/step_cost.h"
#include "ledger/module_path.h"

namespace headroom {
namespace {

OpPhase PhaseOf(std::string_view phase) {
  if (phase == "backward") return OpPhase::kBackward;
  if (phase == "optimizer") return OpPhase::kOptimizer;
  return OpPhase::kForward;
}

}  // namespace

std::string_view Name(OpPhase phase) {
  switch (phase) {
    case OpPhase::kForward:
      return "forward";
    case OpPhase::kBackward:
      return "backward";
    case OpPhase::kOptimizer:
      return "optimizer";
  }
  return "";
}

OpTotals& OpTotals::operator+=(const OpTotals& other) {
  flops += other.flops;
  bytes += other.bytes;
  peak_seconds += other.peak_seconds;
  reached_seconds += other.reached_seconds;
  memory_seconds += other.memory_seconds;
  kernels += other.kernels;
  return *this;
}

void OpProfile::OnOp(const Op& op) {
  const OpWork& work = op.work;
  const Rates peak = PeakRates(gpu_, precision_, work.op_class, work.dtype);
  const Rates reached = ReachedRates(gpu_, precision_, work.op_class, work.dtype);
  const double bytes = work.read + work.written;
  const double seconds = RooflineSeconds(work, peak);
  const bool memory_bound = bytes / peak.bytes >= work.flops / peak.flops;
  const OpTotals totals{
      work.flops, bytes, seconds, RooflineSeconds(work, reached), memory_bound ? seconds : 0, 1};
  const OpPhase phase = PhaseOf(op.phase);
  cells_[static_cast<size_t>(phase)][static_cast<size_t>(work.op_class)] += totals;
  groups_[{WithoutIndices(op.module), op.name, phase, work.op_class}] += totals;
}

void OpProfile::AverageOver(int steps) {
  const auto divide = [steps](OpTotals& totals) {
    for (double* value : {&totals.flops, &totals.bytes, &totals.peak_seconds,
                          &totals.reached_seconds, &totals.memory_seconds, &totals.kernels}) {
      *value /= steps;
    }
  };
  for (auto& phase : cells_) {
    for (OpTotals& cell : phase) divide(cell);
  }
  for (auto& [key, totals] : groups_) divide(totals);
}

OpTotals OpProfile::Sum(OpPhase phase) const {
  OpTotals sum;
  for (const OpTotals& cell : cells_[static_cast<size_t>(phase)]) sum += cell;
  return sum;
}

OpTotals OpProfile::Sum(OpClass op_class) const {
  OpTotals sum;
  for (const auto& phase : cells_) sum += phase[static_cast<size_t>(op_class)];
  return sum;
}

OpTotals OpProfile::Sum() const {
  OpTotals sum;
  for (int phase = 0; phase < kOpPhaseCount; ++phase) sum += Sum(static_cast<OpPhase>(phase));
  return sum;
}

std::vector<OpGroup> OpProfile::Largest(size_t count) const {
  std::vector<OpGroup> groups;
  for (const auto& [key, totals] : groups_) {
    const auto& [module, name, phase, op_class] = key;
    groups.push_back({module, name, phase, op_class, totals});
  }
  std::ranges::stable_sort(groups, std::greater(),
                           [](const OpGroup& group) { return group.totals.peak_seconds; });
  if (groups.size() > count) groups.resize(count);
  return groups;
}

}  // namespace headroom
