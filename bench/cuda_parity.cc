// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend against the CPU's, on a machine with a GPU. Prints a line for each check, and
// returns 1 when one fails.
//
//   ops       each op of small models, from the same bytes. With 16-bit storage the error against
//             the same op on float32 copies of its operands is at most twice the CPU op's; with
//             float32, results agree to 1e-5 of their norm. Bytes that are no output stay.
//   models    loss and gradients of whole micro-steps, and masters after an update
//   bits      two runs, graph against stream, block recompute against none: the same bytes
//   updates   of bfloat16 weights without masters, and whole runs; cuda_update_parity.cc
//   cudnn     the first three again with attention by cuDNN, where its mask is no matter: ops and
//             models without dropout of attention, bits with it; cuda_attention_parity.cc
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "cuda_attention_parity.h"
#include "cuda_parity_cases.h"
#include "cuda_update_parity.h"
#include "engine/cpu/cpu_ops.h"
#include "engine/cuda/cuda_backend.h"
#include "engine/half.h"
#include "engine/tiny_models.h"

namespace headroom::engine {
namespace {

using graph::Op;
using graph::OpKind;
using graph::Role;
using graph::TensorId;

int failures = 0;

}  // namespace

void Check(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("FAILED  %s\n", what.c_str());
}

namespace {

double ValueAt(const TensorView& view, int64_t i) {
  const int64_t at = i / view.cols() * view.stride() + i % view.cols();
  switch (view.dtype) {
    case DType::kFloat32:
      return static_cast<double>(view.As<float>()[at]);
    case DType::kBFloat16:
      return static_cast<double>(FromBFloat16(view.As<uint16_t>()[at]));
    case DType::kFloat16:
      return static_cast<double>(FromFloat16(view.As<uint16_t>()[at]));
    case DType::kUInt8:
      return view.As<uint8_t>()[at];
    default:
      return view.As<int32_t>()[at];
  }
}

// ‖a - b‖ and ‖b‖.
struct Distance {
  double difference = 0;
  double norm = 0;
  void Add(double a, double b) {
    const bool same = a == b || (std::isnan(a) && std::isnan(b));
    if (!same) difference += (a - b) * (a - b);
    if (std::isfinite(b)) norm += b * b;
  }
  double Relative() const { return std::sqrt(difference / std::max(norm, 1e-60)); }
};

Distance Between(const TensorView& a, const TensorView& b) {
  Distance distance;
  for (int64_t i = 0; i < a.shape.NumElements(); ++i) distance.Add(ValueAt(a, i), ValueAt(b, i));
  return distance;
}

// Whether values of 16 bits are equal or have no other between them, all of them: what sums in
// another order can make of a result. Of a few outputs the error's ratio tells little.
bool AreNeighbours(const TensorView& a, const TensorView& b) {
  const auto ordered = [](const TensorView& view, int64_t i) {
    const uint16_t bits = view.As<uint16_t>()[i / view.cols() * view.stride() + i % view.cols()];
    return (bits & 0x8000U) != 0 ? -static_cast<int>(bits & 0x7fffU) : static_cast<int>(bits);
  };
  for (int64_t i = 0; i < a.shape.NumElements(); ++i) {
    if (std::abs(ordered(a, i) - ordered(b, i)) > 1) return false;
  }
  return true;
}

// The op on float32 copies of its operands.
class Reference {
 public:
  std::vector<TensorView> Copies(std::span<const TensorView> views) {
    std::vector<TensorView> result;
    for (const TensorView& view : views) result.push_back(Copy(view));
    return result;
  }

 private:
  TensorView Copy(const TensorView& view) {
    if (!view || !IsHalf(view.dtype)) {
      if (!view) return view;
      auto& bytes = raw_[{view.data, view.cols()}];
      if (bytes.empty()) {
        const int64_t span = (view.rows() - 1) * view.stride() + view.cols();
        bytes.assign(view.data, view.data + span * ElementSize(view.dtype));
      }
      return {bytes.data(), view.dtype, view.shape, view.row_stride};
    }
    auto& values = floats_[{view.data, view.cols()}];
    if (values.empty()) {
      for (int64_t i = 0; i < view.shape.NumElements(); ++i) {
        values.push_back(static_cast<float>(ValueAt(view, i)));
      }
    }
    return {reinterpret_cast<std::byte*>(values.data()), DType::kFloat32, view.shape, 0};
  }

  std::map<std::pair<std::byte*, int64_t>, std::vector<float>> floats_;
  std::map<std::pair<std::byte*, int64_t>, std::vector<std::byte>> raw_;
};

struct Worst {
  double ratio = 0;     // 16-bit: CUDA's error over the CPU's
  double relative = 0;  // float32
  int count = 0;
};

std::vector<TensorView> ViewsOf(const Executor& executor, const std::vector<TensorId>& ids) {
  std::vector<TensorView> views;
  for (const TensorId id : ids) {
    views.push_back(id == graph::kNoTensor ? TensorView{} : executor.View(id));
  }
  return views;
}

// Bytes [first, last) that an op may write.
using Ranges = std::vector<std::pair<size_t, size_t>>;

void Allow(const TensorView& view, const std::byte* arena, Ranges& ranges) {
  for (int64_t row = 0; view && row < view.rows(); ++row) {
    const int64_t size = ElementSize(view.dtype);
    const auto first = static_cast<size_t>(view.data - arena + row * view.stride() * size);
    ranges.emplace_back(first, first + static_cast<size_t>(view.cols() * size));
  }
}

// Whether two arenas agree outside the ranges.
bool SameOutside(std::span<const std::byte> a, std::span<const std::byte> b, Ranges ranges) {
  ranges.emplace_back(a.size(), a.size());
  std::sort(ranges.begin(), ranges.end());
  size_t at = 0;
  for (const auto& [first, last] : ranges) {
    if (first > at && std::memcmp(a.data() + at, b.data() + at, first - at) != 0) return false;
    at = std::max(at, last);
  }
  return true;
}

// `after` is room for an arena: most of the time goes into moving arenas, of which each op has
// three passes and no memory of its own.
void CompareOp(const Case& test, size_t index, const TinyRun& run, CudaExecutor& cuda,
               const StepScalars& scalars, std::vector<std::byte>& after,
               std::map<std::string, Worst>& worst) {
  const Op& op = run.step().graph().ops()[index];
  const Executor& executor = run.executor();
  const Bytes size = run.step().plan.size;
  std::byte* arena = run.arena().data();
  const auto inputs = ViewsOf(executor, op.inputs);
  const auto outputs = ViewsOf(executor, op.outputs);
  const auto scratch = ViewsOf(executor, op.scratch);
  Reference reference;
  const auto reference_inputs = reference.Copies(inputs);
  const auto reference_outputs = reference.Copies(outputs);
  const auto reference_scratch = reference.Copies(scratch);
  cuda.UploadArena(arena, size);
  cuda.RunOps(index, index + 1, scalars);
  cuda.DownloadArena(after.data(), size);
  const std::string name =
      test.model.name + ": " + std::string(Name(op.kind)) + " (op " + std::to_string(index) + ")";
  Ranges ranges;
  for (const auto* views : {&outputs, &scratch}) {
    for (const TensorView& view : *views) Allow(view, arena, ranges);
  }
  if (op.kind == OpKind::kCrossEntropy) Allow(inputs[0], arena, ranges);
  Check(SameOutside({arena, after.size()}, after, std::move(ranges)),
        name + " wrote bytes that are not its own");
  executor.RunOps(index, index + 1, scalars);
  const bool update = op.kind == OpKind::kUpdate;
  if (!update) {
    cpu::RunCpuOp({.kind = op.kind,
                   .attributes = op.attributes,
                   .inputs = reference_inputs,
                   .outputs = reference_outputs,
                   .scratch = reference_scratch,
                   .step = scalars});
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    TensorView got = outputs[i];
    got.data = after.data() + (outputs[i].data - arena);
    Worst& most = worst[std::string(Name(op.kind)) + " " + std::string(Name(got.dtype))];
    ++most.count;
    const double direct = Between(got, outputs[i]).Relative();
    if (!IsHalf(got.dtype) || update) {
      // Sums of 16-bit values and codes of 8 bits may differ by more than a float32's rounding.
      const double bound = test.options.precision == Precision::kFp32 ? 1e-5 : 1e-2;
      if (got.dtype != DType::kUInt8) most.relative = std::max(most.relative, direct);
      Check(direct <= bound, name + " output " + std::to_string(i) + ": " + std::to_string(direct));
      continue;
    }
    const double ours = Between(got, reference_outputs[i]).Relative();
    const double theirs = Between(outputs[i], reference_outputs[i]).Relative();
    const double ratio = ours / std::max(theirs, 1e-7);
    most.ratio = std::max(most.ratio, ratio);
    Check(ratio <= 2 || AreNeighbours(got, outputs[i]), name + " output " + std::to_string(i) +
                                                            ": error " + std::to_string(ours) +
                                                            ", CPU " + std::to_string(theirs));
  }
}

Result<std::unique_ptr<CudaDevice>> DeviceFor(Bytes size) {
  HEADROOM_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Open(0));
  HEADROOM_RETURN_IF_ERROR(device->Allocate(size));
  return device;
}

void CompareOps(const Case& test, std::map<std::string, Worst>& worst) {
  TinyRun run(test.model, test.options);
  auto device = DeviceFor(run.step().plan.size);
  HEADROOM_CHECK(device.ok(), device.error().message);
  CudaExecutor cuda(**device, run.step().graph(), run.step().plan,
                    {.graphs = false, .cudnn = test.cudnn});
  if (test.cudnn) CheckServed(test.model.name, cuda);
  StepScalars scalars = run.scalars();
  scalars.learning_rate = 1e-3F;
  scalars.max_grad_norm = 1;
  // As a training has it: without a scale gradients of scores are below what float16 can hold.
  if (test.options.precision == Precision::kFp16) scalars.loss_scale = 0x1p12F;
  const size_t ops = run.step().graph().ops().size();
  const int64_t micro_steps = test.options.gradient_accumulation_steps;
  std::vector<std::byte> after(static_cast<size_t>(run.step().plan.size.count()));
  for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
    scalars.micro_step = micro_step;
    for (size_t i = 0; i < ops; ++i) {
      if (micro_step + 1 < micro_steps &&
          run.step().graph().ops()[i].phase == graph::Phase::kOptimizer) {
        break;
      }
      CompareOp(test, i, run, cuda, scalars, after, worst);
    }
  }
}

struct Outcome {
  float loss = 0;
  std::vector<std::byte> arena;
};

std::vector<std::byte> GradientsIn(const TinyRun& run, const Outcome& outcome) {
  std::vector<std::byte> bytes;
  for (const graph::Parameter& parameter : run.step().graph().parameters()) {
    const graph::Tensor& gradient = run.step().graph().tensor(parameter.gradient);
    const auto first = run.step().plan.offsets[graph::Index(parameter.gradient)].count();
    bytes.insert(bytes.end(), outcome.arena.begin() + first,
                 outcome.arena.begin() + first + SizeOf(gradient).count());
  }
  return bytes;
}

// The micro-steps of a step, from the bytes of a fresh run.
Outcome RunOnCuda(TinyRun& run, int64_t micro_steps, bool graphs, bool cudnn) {
  auto device = DeviceFor(run.step().plan.size);
  HEADROOM_CHECK(device.ok(), device.error().message);
  CudaExecutor cuda(**device, run.step().graph(), run.step().plan,
                    {.graphs = graphs, .cudnn = cudnn});
  const Bytes size = run.step().plan.size;
  cuda.UploadArena(run.arena().data(), size);
  StepScalars scalars = run.scalars();
  scalars.learning_rate = 1e-3F;
  for (int micro_step = 0; micro_step < micro_steps; ++micro_step) {
    scalars.micro_step = micro_step;
    cuda.Run(Section::kMicroStep, scalars);
  }
  Outcome outcome;
  outcome.arena.resize(static_cast<size_t>(size.count()));
  cuda.DownloadArena(outcome.arena.data(), size);
  const auto at = run.step().plan.offsets[graph::Index(run.step().model.loss)].count();
  std::memcpy(&outcome.loss, outcome.arena.data() + at, sizeof(float));
  return outcome;
}

// Two runs, graph and stream, with and without recompute: the same gradients to the bit.
Outcome CompareBits(const Case& test, TinyRun& run) {
  const std::string name = test.model.name + (test.cudnn ? " (cuDNN)" : "");
  const auto once = [&](TinyRun& of, bool graphs) {
    return RunOnCuda(of, test.options.gradient_accumulation_steps, graphs, test.cudnn);
  };
  Outcome cuda = once(run, true);
  const std::vector<std::byte> gradients = GradientsIn(run, cuda);
  Check(gradients == GradientsIn(run, once(run, false)), name + ": graph against stream");
  Check(gradients == GradientsIn(run, once(run, true)), name + ": two runs");
  Case recomputed = test;
  recomputed.options.recompute = graph::Recompute::kBlock;
  TinyRun block(recomputed.model, recomputed.options);
  Check(gradients == GradientsIn(block, once(block, true)),
        name + ": block recompute against none");
  return cuda;
}

void CompareModel(const Case& test) {
  TinyRun run(test.model, test.options);
  const Outcome cuda = CompareBits(test, run);
  const std::string name = test.model.name + (test.cudnn ? " (cuDNN)" : "");
  float mean = 0;
  for (int i = 0; i < test.options.gradient_accumulation_steps; ++i) mean = run.ForwardBackward(i);
  const float cpu_loss = mean * run.scalars().targets;
  double worst = 0;
  std::string worst_name;
  for (const graph::Parameter& parameter : run.step().graph().parameters()) {
    const TensorView want = run.executor().View(parameter.gradient);
    TensorView got = want;
    got.data = const_cast<std::byte*>(cuda.arena.data()) + (want.data - run.arena().data());
    const double relative = Between(got, want).Relative();
    if (relative <= worst) continue;
    worst = relative;
    worst_name = run.step().graph().tensor(parameter.weight).name;
  }
  const double loss =
      std::fabs(static_cast<double>(cuda.loss - cpu_loss)) / static_cast<double>(cpu_loss);
  std::printf("model  %-22s %-5s loss %.5f CPU %.5f, gradients differ by %.2e at most (%s)\n",
              name.c_str(), test.options.precision == Precision::kFp32 ? "fp32" : "16bit",
              static_cast<double>(cuda.loss), static_cast<double>(cpu_loss), worst,
              worst_name.c_str());
  const bool fp32 = test.options.precision == Precision::kFp32;
  Check(loss <= (fp32 ? 1e-5 : 1e-2), name + ": loss");
  Check(worst <= (fp32 ? 1e-3 : 0.2), name + ": gradient of " + worst_name);
}

// Without dropout of attention cuDNN has to agree with the CPU, and with it with itself.
void CompareCudnn(Case test, std::map<std::string, Worst>& worst) {
  test.cudnn = true;
  test.options.gradient_accumulation_steps = 1;
  TinyRun run(test.model, test.options);
  CompareBits(test, run);
  for (const char* option :
       {"\"attention_probs_dropout_prob\": ", "\"attn_pdrop\": ", "\"attention_dropout\": "}) {
    const size_t at = test.model.config.find(option);
    if (at == std::string::npos) continue;
    test.model.config.replace(at + std::string(option).size(), 3, "0.0");
  }
  test.model.name += ", attention kept whole";
  std::map<std::string, Worst> all;
  CompareOps(test, all);
  for (const auto& [name, most] : all) {
    if (name.find("attention") == std::string::npos) continue;
    Worst& sum = worst[name];
    sum.ratio = std::max(sum.ratio, most.ratio);
    sum.relative = std::max(sum.relative, most.relative);
    sum.count += most.count;
  }
  CompareModel(test);
}

int Summary() {
  std::printf("%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}

int Main(const Selection& selection) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (selection.part == 0 && !selection.cudnn_alone) CheckUpdates();
  if (selection.part == 0 && !selection.cudnn_alone) CheckLosses();
  if (selection.part == 0 && !selection.cudnn_alone && !selection.quick) CheckRuns();
  if (selection.updates_alone) return Summary();
  std::map<std::string, Worst> worst;
  std::map<std::string, Worst> cudnn_worst;
  for (const Case& test : Cases(selection)) {
    if (!selection.cudnn_alone) {
      CompareOps(test, worst);
      CompareModel(test);
    }
    const bool served =
        selection.cudnn && IsWide(test.model) && test.options.precision != Precision::kFp32;
    if (served && HasCudnn()) CompareCudnn(test, cudnn_worst);
  }
  const bool last_part = selection.part + 1 == selection.parts;
  if (selection.cudnn && !selection.quick && last_part && HasCudnn()) CheckCudnnAttention();
  for (auto& [name, most] : cudnn_worst) worst[name + " (cuDNN)"] = most;
  for (const auto& [name, most] : worst) {
    std::printf("op     %-36s %5d outputs, error %.2f of the CPU's at most, float32 %.1e\n",
                name.c_str(), most.count, most.ratio, most.relative);
  }
  return Summary();
}

}  // namespace
}  // namespace headroom::engine

// --quick: three models in bfloat16, for compute-sanitizer. --cudnn: what is of cuDNN alone;
// --no-cudnn: our own kernels alone, for racecheck.
// --updates: updates and runs alone.
// --part 2/4: the second of four parts, which together are everything.
int main(int argc, char** argv) {
  using namespace headroom::engine;
  Selection selection;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick") {
      selection.quick = true;
    } else if (word == "--cudnn") {
      selection.cudnn_alone = true;
    } else if (word == "--no-cudnn") {
      selection.cudnn = false;
    } else if (word == "--updates") {
      selection.updates_alone = true;
    } else if (word != "--part" || ++i == argc || !ParsePart(argv[i], selection)) {
      std::fprintf(
          stderr, "usage: cuda_parity [--quick] [--cudnn | --no-cudnn] [--updates] [--part K/N]\n");
      return 2;
    }
  }
  return Main(selection);
}
