// SPDX-License-Identifier: Apache-2.0
#include "measure_ops.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "advise/step_cost.h"
#include "base/format.h"
#include "engine/step_profiler.h"
#include "graph/op_work.h"
#include "interrupt.h"
#include "make_native.h"
#include "make_plan.h"
#include "output.h"
#include "progress_line.h"
#include "report/measured_ops.h"
#include "resident_memory.h"

namespace headroom::cli {
namespace {

using graph::Graph;
using graph::Micro;
using graph::Role;

OpClass ReportedClass(graph::OpKind kind) {
  switch (graph::ClassOf(kind)) {
    case graph::OpClass::kContraction:
      return OpClass::kContraction;
    case graph::OpClass::kNormalisation:
      return OpClass::kNormalization;
    case graph::OpClass::kElementwise:
      return OpClass::kElementwise;
  }
  return OpClass::kElementwise;
}

// The module whose weight it reads or whose gradient it writes; where there is none, that of what
// it writes. The optimizer's ops have all modules, and so none.
std::string ModuleOf(const Graph& graph, const graph::Op& op) {
  if (op.phase == graph::Phase::kOptimizer) return "";
  std::string module;
  for (const auto* operands : {&op.outputs, &op.inputs}) {
    for (const graph::TensorId id : *operands) {
      if (id == graph::kNoTensor) continue;
      const graph::Tensor& tensor = graph.tensor(id);
      if (tensor.role == Role::kWeight || tensor.role == Role::kGradient ||
          tensor.role == Role::kStepGradient) {
        return tensor.name.substr(0, tensor.name.rfind('.'));
      }
      if (module.empty()) module = graph.tensor(graph.Root(id)).module;
    }
  }
  return module;
}

// What an op does in an optimizer step, and what it cannot be faster than on `gpu`.
class Counter {
 public:
  Counter(const Graph& graph, const engine::TrainOptions& options, const std::optional<Gpu>& gpu)
      : graph_(graph), options_(options), gpu_(gpu) {}

  MeasuredOp Count(const graph::Op& op, double seconds) const {
    const OpClass op_class = ReportedClass(op.kind);
    MeasuredOp measured{.module = ModuleOf(graph_, op),
                        .op = std::string(Name(op.kind)),
                        .phase = std::string(Name(op.phase)),
                        .op_class = std::string(Name(op_class)),
                        .line = {.seconds = seconds}};
    Add(op, op_class, Micro::kFirst, 1, measured.line);
    const int64_t later = options_.gradient_accumulation_steps - 1;
    if (op.phase != graph::Phase::kOptimizer) {
      Add(op, op_class, Micro::kLater, later, measured.line);
    }
    return measured;
  }

 private:
  void Add(const graph::Op& op, OpClass op_class, Micro micro, int64_t count,
           MeasuredLine& line) const {
    const auto times = static_cast<double>(count);
    const graph::OpWork work = WorkOf(graph_, op, micro);
    line.flops += times * work.flops;
    line.bytes += times * work.bytes();
    line.ops += count;
    if (!gpu_) return;
    const Rates rates = PeakRates(*gpu_, options_.precision, op_class, work.dtype);
    const double arithmetic = work.flops / rates.flops;
    const double traffic = work.bytes() / rates.bytes;
    line.roofline_seconds += times * std::max(arithmetic, traffic);
    if (traffic >= arithmetic) line.memory_seconds = line.seconds;
  }

  const Graph& graph_;
  const engine::TrainOptions& options_;
  const std::optional<Gpu>& gpu_;
};

Status CheckFits(Bytes needed, std::optional<Bytes> free, std::string_view where) {
  if (!free || needed <= *free) return {};
  return Error::BadInput(
      Format("the arena of {} is more than the {} that {} has free: lower --batch or --seq, or add "
             "--gradient-checkpointing",
             FormatBytes(needed), FormatBytes(*free), where));
}

std::vector<std::string> Assumed(const Decided& decided, const Graph& graph, bool cuda) {
  std::vector<std::string> lines = NativeAssumptions(decided);
  lines.emplace_back("random weights and tokens; every sequence is full");
  lines.emplace_back(
      "an op reads every operand once and writes every result once; what it keeps to itself, such "
      "as the scores of attention, is no traffic");
  const bool fused = std::ranges::any_of(
      graph.ops(), [](const graph::Op& op) { return op.kind == graph::OpKind::kLinearLoss; });
  if (fused) {
    lines.emplace_back("forward holds the gradients of the last projection: its loss makes them");
  }
  if (cuda)
    lines.emplace_back(
        "an op's time begins where the one before it ends: the gap between them is in it");
  return lines;
}

class Measurement {
 public:
  Measurement(const PlanOptions& options, DeviceName where) : options_(options), where_(where) {}

  // Nothing when Ctrl-C ended it.
  Result<std::optional<MeasuredOpsReport>> Make();

 private:
  Status OpenDevice();
  // Of the card that the measurement is held against.
  std::optional<Gpu> FindRates(const Decided& decided);

  const PlanOptions& options_;
  const DeviceName where_;
  engine::TrainOptions train_;
  std::unique_ptr<engine::Device> device_;  // outlives the profiler
  MeasuredOpsReport report_;
};

Status Measurement::OpenDevice() {
  report_.device = "CPU";
  if (!where_.cuda) {
    if (!options_.gpu) return {};
    return Error::BadInput(
        "--gpu names the card whose roofline stands beside the times: leave it out on the CPU");
  }
  HEADROOM_ASSIGN_OR_RETURN(device_, OpenCuda(where_.index, train_.precision == Precision::kTf32));
  report_.device = device_->name();
  return {};
}

std::optional<Gpu> Measurement::FindRates(const Decided& decided) {
  if (!where_.cuda) return std::nullopt;
  const Result<Gpu> gpu = options_.gpu ? Result<Gpu>(*options_.gpu) : FindGpu(report_.device);
  if (!gpu.ok()) {
    report_.assumptions.push_back(
        Format("no roofline: the catalogue has no {} (--gpu names a card)", report_.device));
    return std::nullopt;
  }
  const DType dtype = train_.precision == Precision::kBf16 || train_.precision == Precision::kFp16
                          ? DType::kBFloat16
                          : DType::kFloat32;
  const Rates rates = PeakRates(*gpu, decided.recipe.precision, OpClass::kContraction, dtype);
  report_.rates = DeviceRates{std::string(gpu->name), rates.flops, rates.bytes};
  report_.assumptions.emplace_back("roofline at the rates of the data sheet, without sparsity");
  return *gpu;
}

Result<std::optional<MeasuredOpsReport>> Measurement::Make() {
  HEADROOM_ASSIGN_OR_RETURN(const LoadedModel model, LoadModel(options_.model));
  const Decided decided = Decide(options_, model.config);
  HEADROOM_ASSIGN_OR_RETURN(train_, NativeRecipe(decided.recipe, "--measure"));
  train_.cuda = where_.cuda;
  HEADROOM_RETURN_IF_ERROR(OpenDevice());
  Result<engine::StepProfiler> profiler = engine::StepProfiler::Plan(model.config, train_);
  if (!profiler.ok()) return profiler.error().In(model.origin);
  const graph::MemoryPlan& plan = profiler->step().plan;
  if (device_ != nullptr) {
    HEADROOM_RETURN_IF_ERROR(
        CheckFits(plan.size, device_->free_memory(), "the " + device_->name()));
  }
  // The host keeps the persistent part of what a device runs.
  HEADROOM_RETURN_IF_ERROR(
      CheckFits(where_.cuda ? plan.shared : plan.size, AvailableMemory(), "this machine"));

  ProgressLine progress;
  HEADROOM_RETURN_IF_ERROR(profiler->Start(device_.get()));
  HEADROOM_ASSIGN_OR_RETURN(
      const std::optional<engine::StepProfile> profile,
      profiler->Run([&](std::string_view what, int run, int runs) {
        progress.Show([&] { return Format("{}: run {} of {}", what, run, runs); });
        return !InterruptScope::Requested();
      }));
  if (!profile) return std::optional<MeasuredOpsReport>();

  const Graph& graph = profiler->graph();
  report_.model = model.name;
  report_.recipe = NativeParts(train_);
  report_.parameters = ParametersOf(graph);
  report_.replayed_seconds = profile->replayed_seconds;
  report_.arena = plan.size;
  report_.runs = profile->runs;
  report_.assumptions = Assumed(decided, graph, where_.cuda);
  const std::optional<Gpu> gpu = FindRates(decided);
  const Counter counter(graph, train_, gpu);
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    report_.ops.push_back(counter.Count(graph.ops()[i], profile->seconds[i]));
  }
  report_.warnings = decided.warnings;
  std::ranges::copy(model.config.warnings(), std::back_inserter(report_.warnings));
  return std::optional(std::move(report_));
}

}  // namespace

ExitCode RunMeasuredOps(const PlanOptions& options, std::optional<DeviceName> device,
                        const TextStyle& style) {
  const InterruptScope scope;
  Measurement measurement(options, device.value_or(DefaultDevice()));
  const Result<std::optional<MeasuredOpsReport>> report = measurement.Make();
  if (!report.ok()) return Fail("ops", report.error());
  if (!report->has_value()) {
    Warn("ops", "stopped before the step was measured");
    return ExitCode::kInterrupted;
  }
  if (!options.json) return Print(MeasuredOpsText(**report, style));
  for (const std::string& warning : (*report)->warnings) Warn("ops", warning);
  return Print(MeasuredOpsJson(**report));
}

}  // namespace headroom::cli
