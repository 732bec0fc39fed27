// SPDX-License-Identifier: Apache-2.0
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/cuda/attention_plans.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/cuda_state.h"

namespace headroom::engine {

using graph::Graph;
using graph::Op;
using graph::OpKind;
using graph::TensorId;

struct CudaExecutor::State {
  struct Call {
    std::vector<TensorView> inputs, outputs, scratch;
    cuda::TableEntry* entries = nullptr;
    cuda::TableChunk* chunks = nullptr;
    cuda::OpTable table;
  };
  // Section, and whether it is a window's first micro-step and of training.
  using GraphKey = std::tuple<Section, bool, bool>;

  CudaDevice::State& device;
  const Graph& graph;
  CudaOptions options;
  std::vector<TensorView> views;
  std::vector<Call> calls;
  std::map<GraphKey, cudaGraphExec_t> graphs;
  std::unique_ptr<cuda::AttentionPlans> attention;
  std::set<const cuda::AttentionPlan*> warm;
  const float* loss = nullptr;  // of a training graph

  ~State() {
    for (const auto& [key, exec] : graphs) cudaGraphExecDestroy(exec);
    for (const Call& call : calls) {
      cudaFree(call.entries);
      cudaFree(call.chunks);
    }
  }

  void MakeTable(const Op& op, Call& call);
  void Launch(Section section, const StepScalars& scalars);
  OpCall CallOf(size_t index, const StepScalars& scalars) const;
  void LaunchOp(size_t index, const StepScalars& scalars);
  void SetScalars(const StepScalars& scalars) const;
  void WarmAttention(const StepScalars& scalars);
};

// The addresses of all gradients, or of all parameters, cut into chunks.
void CudaExecutor::State::MakeTable(const Op& op, Call& call) {
  const bool update = op.kind == OpKind::kUpdate;
  if (!update && op.kind != OpKind::kGradNorm) return;
  std::vector<cuda::TableEntry> entries;
  std::vector<cuda::TableChunk> chunks;
  for (size_t i = update ? 1 : 0; i < call.inputs.size(); ++i) {
    const TensorView& gradient = call.inputs[i];
    if (!gradient) continue;
    cuda::TableEntry entry{.gradient = gradient.data, .gradient_type = gradient.dtype};
    if (update) {
      const TensorView* outputs = &call.outputs[(i - 1) * graph::kUpdateOutputs];
      entry.weight = outputs[0].data;
      entry.weight_type = outputs[0].dtype;
      entry.m = outputs[1].data;
      entry.state_type = outputs[1] ? outputs[1].dtype : DType::kFloat32;
      entry.v = outputs[2].data;
      entry.copy = outputs[3].data;
      entry.copy_type = outputs[3] ? outputs[3].dtype : outputs[0].dtype;
      entry.m_scales = outputs[4].As<float>();
      entry.v_scales = outputs[5].As<float>();
    }
    const int64_t elements = gradient.shape.NumElements();
    for (int64_t start = 0; start < elements; start += cuda::kTableChunk) {
      chunks.push_back(
          {.entry = static_cast<uint32_t>(entries.size()),
           .count = static_cast<uint32_t>(std::min<int64_t>(cuda::kTableChunk, elements - start)),
           .start = start});
    }
    entries.push_back(entry);
  }
  call.entries = OnDevice(entries);
  call.chunks = OnDevice(chunks);
  call.table = {call.entries, call.chunks, static_cast<int64_t>(chunks.size())};
}

CudaExecutor::CudaExecutor(CudaDevice& device, const Graph& graph, const graph::MemoryPlan& plan,
                           const CudaOptions& options)
    : state_(new State{device.state(), graph, options, {}, {}, {}, {}, {}, {}}) {
  HEADROOM_CHECK(plan.size.count() <= state_->device.arena_size, "an arena smaller than its plan");
  for (size_t i = 0; i < graph.tensors().size(); ++i) {
    const graph::Tensor& tensor = graph.tensors()[i];
    state_->views.push_back({.data = state_->device.arena + plan.offsets[i].count(),
                             .dtype = tensor.dtype,
                             .shape = tensor.shape,
                             .row_stride = tensor.row_stride});
  }
  const TensorId loss = graph.Find(graph::Role::kBuffer, "loss");
  if (loss != graph::kNoTensor) state_->loss = state_->views[graph::Index(loss)].As<float>();
  const auto views = [&](const std::vector<TensorId>& operands) {
    std::vector<TensorView> result;
    for (const TensorId id : operands) {
      result.push_back(id == graph::kNoTensor ? TensorView{} : state_->views[graph::Index(id)]);
    }
    return result;
  };
  for (const Op& op : graph.ops()) {
    State::Call call;
    call.inputs = views(op.inputs);
    call.outputs = views(op.outputs);
    call.scratch = views(op.scratch);
    state_->MakeTable(op, call);
    state_->calls.push_back(std::move(call));
  }
  state_->attention = std::make_unique<cuda::AttentionPlans>(
      options.cudnn ? state_->device.attention.get() : nullptr, graph,
      [this](size_t op, const StepScalars& step) { return state_->CallOf(op, step); });
}

CudaExecutor::~CudaExecutor() = default;

OpCall CudaExecutor::State::CallOf(size_t index, const StepScalars& scalars) const {
  const Op& op = graph.ops()[index];
  const Call& call = calls[index];
  return {.kind = op.kind,
          .attributes = op.attributes,
          .inputs = call.inputs,
          .outputs = call.outputs,
          .scratch = call.scratch,
          .step = scalars};
}

void CudaExecutor::State::SetScalars(const StepScalars& scalars) const {
  cuda::SetScalars(scalars, device.scalars, device.stream);
  attention->SetSeeds(device.scalars, device.stream);
}

void CudaExecutor::State::LaunchOp(size_t index, const StepScalars& scalars) {
  cuda::RunCudaOp(CallOf(index, scalars), {.stream = device.stream,
                                           .scalars = device.scalars,
                                           .quantiser_maps = device.quantiser_maps,
                                           .counters = device.counters,
                                           .loss = loss,
                                           .halted = device.halted,
                                           .gemm = device.gemm.get(),
                                           .tf32 = options.tf32,
                                           .table = calls[index].table,
                                           .attention = attention->Of(index, scalars.training)});
}

// A library loads a kernel when it first runs, which may not be in a capture. Before a section
// starts, outputs of attention hold nothing that is still read.
void CudaExecutor::State::WarmAttention(const StepScalars& scalars) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const cuda::AttentionPlan* plan = attention->Of(i, scalars.training).plan;
    if (plan != nullptr && warm.insert(plan).second) LaunchOp(i, scalars);
  }
}

void CudaExecutor::State::Launch(Section section, const StepScalars& scalars) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const graph::Phase phase = graph.ops()[i].phase;
    const bool optimizer = phase == graph::Phase::kOptimizer;
    if (optimizer != (section == Section::kOptimizer)) continue;
    if (section == Section::kForward && phase != graph::Phase::kForward) continue;
    LaunchOp(i, scalars);
  }
}

void CudaExecutor::Run(Section section, const StepScalars& scalars) {
  State& state = *state_;
  cudaStream_t stream = state.device.stream;
  state.SetScalars(scalars);
  if (!state.options.graphs) return state.Launch(section, scalars);
  cudaGraphExec_t& exec = state.graphs[{section, scalars.micro_step == 0, scalars.training}];
  if (exec == nullptr) {
    if (section != Section::kOptimizer) state.WarmAttention(scalars);
    cudaGraph_t captured = nullptr;
    Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing a graph");
    state.Launch(section, scalars);
    Must(cudaStreamEndCapture(stream, &captured), "capturing a graph");
    Must(cudaGraphInstantiate(&exec, captured, 0), "making a graph");
    cudaGraphDestroy(captured);
  }
  Must(cudaGraphLaunch(exec, stream), "starting a graph");
}

void CudaExecutor::RunOps(size_t first, size_t last, const StepScalars& scalars) {
  state_->SetScalars(scalars);
  for (size_t i = first; i < last; ++i) state_->LaunchOp(i, scalars);
}

std::vector<double> CudaExecutor::Profile(const StepScalars& scalars) {
  cudaStream_t stream = state_->device.stream;
  state_->SetScalars(scalars);
  std::vector<cudaEvent_t> events(state_->calls.size() + 1);
  for (cudaEvent_t& event : events) cudaEventCreate(&event);
  cudaProfilerStart();  // ncu --profile-from-start off sees these alone
  cudaEventRecord(events[0], stream);
  for (size_t i = 0; i < state_->calls.size(); ++i) {
    state_->LaunchOp(i, scalars);
    cudaEventRecord(events[i + 1], stream);
  }
  Must(cudaStreamSynchronize(stream), "waiting for the GPU");
  cudaProfilerStop();
  std::vector<double> seconds;
  for (size_t i = 0; i < state_->calls.size(); ++i) {
    float milliseconds = 0;
    cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]);
    seconds.push_back(static_cast<double>(milliseconds) / 1000);
  }
  for (const cudaEvent_t event : events) cudaEventDestroy(event);
  return seconds;
}

void CudaExecutor::Tune() {
  CudaDevice::State& device = state_->device;
  const size_t timed = device.gemm->timed().algorithms().size();
  device.gemm->set_tuning(true);
  StepScalars scalars;
  // Later micro-steps, where there are any, add to the gradients.
  const std::span<const graph::Tensor> tensors = state_->graph.tensors();
  const bool adds = std::ranges::any_of(
      tensors, [](const graph::Tensor& tensor) { return tensor.role == graph::Role::kGradient; });
  for (int32_t micro_step = 0; micro_step <= (adds ? 1 : 0); ++micro_step) {
    scalars.micro_step = micro_step;
    state_->SetScalars(scalars);
    state_->Launch(Section::kMicroStep, scalars);
  }
  scalars.training = false;
  state_->WarmAttention(scalars);
  device.gemm->set_tuning(false);
  if (device.gemm->timed().algorithms().size() > timed) device.KeepTimed();
  Must(cudaMemsetAsync(device.arena, 0, static_cast<size_t>(device.arena_size), device.stream),
       "zeroing the arena");
}

std::string CudaExecutor::DescribeAttention() const {
  const bool has_library = state_->options.cudnn && state_->device.attention != nullptr;
  const std::string text = state_->attention->Describe();
  return has_library ? text : Format("{} ({})", text, state_->device.no_attention);
}

void CudaExecutor::Upload(TensorId id, const std::byte* from) {
  Must(cudaMemcpyAsync(state_->views[graph::Index(id)].data, from,
                       static_cast<size_t>(SizeOf(state_->graph.tensor(id)).count()),
                       cudaMemcpyHostToDevice, state_->device.stream),
       "copying to the GPU");
}

// From locked memory the copy is not done when this returns; from other memory it is.
void CudaExecutor::UploadLater(TensorId id, const std::byte* from) { Upload(id, from); }

void CudaExecutor::DownloadLater(TensorId id, std::byte* to) const {
  Must(cudaMemcpyAsync(to, state_->views[graph::Index(id)].data,
                       static_cast<size_t>(SizeOf(state_->graph.tensor(id)).count()),
                       cudaMemcpyDeviceToHost, state_->device.stream),
       "copying from the GPU");
}

void CudaExecutor::Download(TensorId id, std::byte* to) const {
  DownloadLater(id, to);
  Must(cudaStreamSynchronize(state_->device.stream), "waiting for the GPU");
}

void CudaExecutor::UploadArena(const std::byte* from, Bytes bytes) {
  Must(cudaMemcpyAsync(state_->device.arena, from, static_cast<size_t>(bytes.count()),
                       cudaMemcpyHostToDevice, state_->device.stream),
       "copying to the GPU");
  Must(cudaStreamSynchronize(state_->device.stream), "waiting for the GPU");
}

void CudaExecutor::DownloadArena(std::byte* to, Bytes bytes) const {
  Must(cudaMemcpyAsync(to, state_->device.arena, static_cast<size_t>(bytes.count()),
                       cudaMemcpyDeviceToHost, state_->device.stream),
       "copying from the GPU");
  Must(cudaStreamSynchronize(state_->device.stream), "waiting for the GPU");
}

void CudaExecutor::Zero(TensorId id) {
  Must(cudaMemsetAsync(state_->views[graph::Index(id)].data, 0,
                       static_cast<size_t>(SizeOf(state_->graph.tensor(id)).count()),
                       state_->device.stream),
       "zeroing a tensor");
}

}  // namespace headroom::engine
