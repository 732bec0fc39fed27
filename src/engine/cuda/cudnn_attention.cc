// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/cudnn_attention.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <exception>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/format.h"
#include "engine/cuda/workspace.h"

namespace cudnn_frontend {
// The frontend's calls go through this handle of dlopen.
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace headroom::engine::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using TensorPointer = std::shared_ptr<Tensor_attributes>;
using graph::OpKind;

// 9.10.0 and 9.10.1 compute wrong gradients (cudnn-frontend 1.32,
// scaled_dot_product_flash_attention.h, which refuses them itself). Before 9.6 dQ was to be zeroed
// by the caller, and before 9.5 padded sequences of any length were not served.
constexpr size_t kOldestVersion = 90600;
constexpr size_t kAlignment = 16;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDo,
  kDq,
  kDk,
  kDv,
  kQueryLengths,
  kKeyLengths,
  kSeed,
  kOffset
};

// The operands of an op, wherever its kind lists them.
struct Operands {
  TensorView q = {}, k = {}, v = {}, o = {}, stats = {}, lengths = {}, slopes = {};
  TensorView dout = {}, dq = {}, dk = {}, dv = {};
};

TensorView At(std::span<const TensorView> operands, size_t position) {
  return position < operands.size() ? operands[position] : TensorView{};
}

Operands OperandsOf(const OpCall& call) {
  const auto in = [&](size_t i) { return At(call.inputs, i); };
  const auto out = [&](size_t i) { return At(call.outputs, i); };
  if (call.kind == OpKind::kAttention) {
    return {.q = in(0),
            .k = in(1),
            .v = in(2),
            .o = out(0),
            .stats = out(1),
            .lengths = in(3),
            .slopes = in(4)};
  }
  return {.q = in(1),
          .k = in(2),
          .v = in(3),
          .o = in(4),
          .stats = in(5),
          .lengths = in(6),
          .slopes = in(7),
          .dout = in(0),
          .dq = out(0),
          .dk = out(1),
          .dv = out(2)};
}

// All that a plan depends on.
struct Problem {
  bool backward = false;
  DType dtype{};
  int64_t batch = 0, sequences = 0;  // of one run; they divide the batch
  int64_t heads = 0, kv_heads = 0, queries = 0, keys = 0, head_dim = 0;
  bool causal = false, lengths = false, stats = false;
  float scale = 0, dropout = 0;
  int64_t q = 0, k = 0, v = 0, o = 0, dout = 0, dq = 0, dk = 0, dv = 0;  // strides of rows

  bool padded() const { return lengths || keys % 128 != 0; }
  std::string Name() const;
};

std::string Problem::Name() const {
  std::string name =
      Format("{} {} batch {} by {}, heads {}/{}, queries {}, keys {}, width {}, scale {}",
             backward ? "attention_backward" : "attention", headroom::Name(dtype), batch, sequences,
             heads, kv_heads, queries, keys, head_dim, scale);
  if (causal) name += ", causal";
  if (lengths) name += ", lengths";
  if (!stats) name += ", no statistics";
  if (dropout > 0) name += Format(", dropout {}", dropout);
  name += Format(", rows {}/{}/{}/{}", q, k, v, o);
  if (backward) name += Format(" and {}/{}/{}/{}", dout, dq, dk, dv);
  return name;
}

Problem ProblemOf(const OpCall& call) {
  const graph::OpAttributes& attributes = call.attributes;
  const Operands x = OperandsOf(call);
  Problem problem;
  problem.backward = call.kind == OpKind::kAttentionBackward;
  problem.dtype = x.q.dtype;
  problem.batch = attributes.batch;
  problem.heads = attributes.heads;
  problem.kv_heads = attributes.kv_heads > 0 ? attributes.kv_heads : attributes.heads;
  problem.queries = attributes.sequence;
  problem.keys = attributes.key_sequence > 0 ? attributes.key_sequence : attributes.sequence;
  problem.head_dim = attributes.head_dim;
  problem.causal = attributes.causal;
  problem.lengths = static_cast<bool>(x.lengths);
  problem.stats = static_cast<bool>(x.stats);
  problem.scale = attributes.scale;
  problem.dropout = call.step.training ? attributes.dropout : 0.0F;
  const bool chunked = problem.backward || problem.dropout > 0;
  problem.sequences =
      chunked ? CudnnSequences(problem.batch, problem.heads, problem.queries, problem.keys)
              : problem.batch;
  problem.q = x.q.stride();
  problem.k = x.k.stride();
  problem.v = x.v.stride();
  problem.o = x.o.stride();
  if (problem.backward) {
    problem.dout = x.dout.stride();
    problem.dq = x.dq.stride();
    problem.dk = x.dk.stride();
    problem.dv = x.dv.stride();
  }
  return problem;
}

// Why the op is not asked of cuDNN at all; empty: it is.
std::string Refusal(const OpCall& call, const Problem& problem) {
  const Operands x = OperandsOf(call);
  if (!IsHalf(problem.dtype)) return "not of 16 bits";
  if (x.slopes) return "a bias that grows with distance";
  if (call.attributes.accumulate) return "adds to its output";
  if (x.lengths && x.lengths.dtype != DType::kInt32) return "lengths of 64 bits";
  if (problem.head_dim % 8 != 0 || problem.head_dim > 256) return "the width of the heads";
  // cuDNN's causal mask ends at the real lengths of a sequence, ours at the padded ones.
  if (problem.causal && problem.queries != problem.keys &&
      (problem.lengths || problem.dropout > 0 || problem.padded())) {
    return "causal over another sequence, with lengths or dropout";
  }
  if (problem.backward && !x.stats) return "no statistics";
  for (const TensorView& view : {x.q, x.k, x.v, x.o, x.dout, x.dq, x.dk, x.dv}) {
    if (!view) continue;
    if (view.stride() % 8 != 0 || reinterpret_cast<uintptr_t>(view.data) % kAlignment != 0) {
      return "rows that do not begin at 16 bytes";
    }
  }
  return {};
}

struct CudnnPlan : AttentionPlan {
  Graph graph;
  Problem problem;
  // int32 per sequence, all alike: what cuDNN wants beside the lengths of the keys.
  int32_t* full_queries = nullptr;
  int32_t* full_keys = nullptr;

  ~CudnnPlan() override {
    cudaFree(full_queries);
    cudaFree(full_keys);
  }
};

std::string Text(const std::string& op, const fe::error_object& status) {
  return Format("{}: cuDNN status {}: {}", op, static_cast<int>(status.code), status.err_msg);
}

class Builder {
 public:
  Builder(Graph& graph, const Problem& problem) : graph_(graph), problem_(problem) {}

  void Forward() {
    const Problem& p = problem_;
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(p.stats);
    Mask(options);
    auto [o, stats] = graph_.sdpa(Queries("q", kQ, p.q), Keys("k", kK, p.k), Keys("v", kV, p.v),
                                  std::move(options));
    Output(o, kO, {p.queries * p.o, p.head_dim, p.o, 1}, {p.heads, p.queries});
    if (!p.stats) return;
    stats->set_output(true)
        .set_uid(kStats)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p.sequences, p.heads, p.queries, 1})
        .set_stride({p.heads * p.queries, p.queries, 1, 1});
  }

  void Backward() {
    const Problem& p = problem_;
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_deterministic_algorithm(true);
    Mask(options);
    const TensorPointer stats =
        Input("stats", kStats, fe::DataType_t::FLOAT, {p.sequences, p.heads, p.queries, 1},
              {p.heads * p.queries, p.queries, 1, 1});
    auto [dq, dk, dv] = graph_.sdpa_backward(Queries("q", kQ, p.q), Keys("k", kK, p.k),
                                             Keys("v", kV, p.v), Queries("o", kO, p.o),
                                             Queries("do", kDo, p.dout), stats, std::move(options));
    Output(dq, kDq, {p.queries * p.dq, p.head_dim, p.dq, 1}, {p.heads, p.queries});
    Output(dk, kDk, {p.keys * p.dk, p.head_dim, p.dk, 1}, {p.kv_heads, p.keys});
    Output(dv, kDv, {p.keys * p.dv, p.head_dim, p.dv, 1}, {p.kv_heads, p.keys});
  }

 private:
  TensorPointer Input(const char* name, Uid uid, fe::DataType_t type, std::vector<int64_t> dims,
                      std::vector<int64_t> strides) {
    return graph_.tensor(Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_data_type(type)
                             .set_dim(std::move(dims))
                             .set_stride(std::move(strides)));
  }
  fe::DataType_t Type() const {
    return problem_.dtype == DType::kBFloat16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF;
  }
  TensorPointer Queries(const char* name, Uid uid, int64_t stride) {
    const Problem& p = problem_;
    return Input(name, uid, Type(), {p.sequences, p.heads, p.queries, p.head_dim},
                 {p.queries * stride, p.head_dim, stride, 1});
  }
  TensorPointer Keys(const char* name, Uid uid, int64_t stride) {
    const Problem& p = problem_;
    return Input(name, uid, Type(), {p.sequences, p.kv_heads, p.keys, p.head_dim},
                 {p.keys * stride, p.head_dim, stride, 1});
  }
  void Output(const TensorPointer& tensor, Uid uid, std::vector<int64_t> strides,
              std::pair<int64_t, int64_t> heads_and_rows) {
    tensor->set_output(true)
        .set_uid(uid)
        .set_data_type(Type())
        .set_dim(
            {problem_.sequences, heads_and_rows.first, heads_and_rows.second, problem_.head_dim})
        .set_stride(std::move(strides));
  }
  // Scale, padding, causal mask and dropout: the two kinds of options have no common base.
  template <typename Options>
  void Mask(Options& options) {
    const Problem& p = problem_;
    options.set_attn_scale(p.scale);
    if (p.padded()) {
      const std::vector<int64_t> dims = {p.sequences, 1, 1, 1};
      options.set_padding_mask(true)
          .set_seq_len_q(
              Input("query lengths", kQueryLengths, fe::DataType_t::INT32, dims, {1, 1, 1, 1}))
          .set_seq_len_kv(
              Input("key lengths", kKeyLengths, fe::DataType_t::INT32, dims, {1, 1, 1, 1}));
    }
    if (p.causal) {
      options
          .set_diagonal_alignment(p.queries == p.keys ? fe::DiagonalAlignment_t::TOP_LEFT
                                                      : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
          .set_diagonal_band_right_bound(0);
    }
    if (p.dropout > 0) {
      options.set_dropout(
          p.dropout, Input("seed", kSeed, fe::DataType_t::INT64, {1, 1, 1, 1}, {1, 1, 1, 1}),
          Input("offset", kOffset, fe::DataType_t::INT64, {1, 1, 1, 1}, {1, 1, 1, 1}));
    }
  }

  Graph& graph_;
  const Problem& problem_;
};

void DescribeGraph(Graph& graph, const Problem& problem, int capability) {
  graph
      .set_io_data_type(problem.dtype == DType::kBFloat16 ? fe::DataType_t::BFLOAT16
                                                          : fe::DataType_t::HALF)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(capability);
  Builder builder(graph, problem);
  if (problem.backward) {
    builder.Backward();
  } else {
    builder.Forward();
  }
}

class Cudnn : public AttentionLibrary {
 public:
  Cudnn(cudnnHandle_t handle, int capability, size_t version)
      : handle_(handle), capability_(capability), version_(version) {}
  ~Cudnn() override {
    plans_.clear();
    fe::detail::destroy_handle(handle_);
  }

  std::string version() const override {
    return Format("cuDNN {}.{}.{}", version_ / 10000, version_ / 100 % 100, version_ % 100);
  }
  Result<const AttentionPlan*> Plan(const OpCall& call) override;
  void Run(const AttentionPlan& plan, const OpCall& call, int64_t* seeds,
           cudaStream_t stream) override;

 private:
  Result<std::unique_ptr<CudnnPlan>> Make(const Problem& problem) const;
  fe::error_object Build(CudnnPlan& plan) const;

  cudnnHandle_t handle_;
  int capability_;
  size_t version_;
  // By name; a refusal is remembered as well.
  std::map<std::string, Result<std::unique_ptr<CudnnPlan>>> plans_;
};

fe::error_object Cudnn::Build(CudnnPlan& plan) const {
  Graph& graph = plan.graph;
  DescribeGraph(graph, plan.problem, capability_);
  fe::error_object status = graph.validate();
  if (status.is_good()) status = graph.build_operation_graph(handle_);
  if (status.is_good()) status = graph.create_execution_plans({fe::HeurMode_t::A});
  if (status.is_good()) status = graph.check_support();
  if (status.is_good()) status = graph.build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE);
  if (status.is_good()) status = graph.get_workspace_size(plan.workspace_bytes);
  return status;
}

Result<std::unique_ptr<CudnnPlan>> Cudnn::Make(const Problem& problem) const {
  auto plan = std::make_unique<CudnnPlan>();
  plan->problem = problem;
  plan->op = problem.Name();
  plan->chunks = problem.batch / problem.sequences;
  try {
    const fe::error_object status = Build(*plan);
    if (status.is_bad()) return Error::Unsupported(Text(plan->op, status));
  } catch (const std::exception& error) {
    return Error::Unsupported(Format("{}: cuDNN: {}", problem.Name(), error.what()));
  }
  if (!problem.padded()) return plan;
  const auto filled = [&](int32_t*& data, int64_t value) {
    const std::vector<int32_t> values(static_cast<size_t>(problem.sequences),
                                      static_cast<int32_t>(value));
    const size_t bytes = values.size() * sizeof(int32_t);
    return cudaMalloc(reinterpret_cast<void**>(&data), bytes) == cudaSuccess &&
           cudaMemcpy(data, values.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess;
  };
  if (!filled(plan->full_queries, problem.queries) || !filled(plan->full_keys, problem.keys)) {
    return Error::Internal("no memory on the GPU for the lengths of sequences");
  }
  return plan;
}

Result<const AttentionPlan*> Cudnn::Plan(const OpCall& call) {
  const Problem problem = ProblemOf(call);
  const std::string name = problem.Name();
  if (const std::string refusal = Refusal(call, problem); !refusal.empty()) {
    return Error::Unsupported(Format("{}: {}", name, refusal));
  }
  auto found = plans_.find(name);
  if (found == plans_.end()) found = plans_.emplace(name, Make(problem)).first;
  if (!found->second.ok()) return found->second.error();
  const CudnnPlan& plan = **found->second;
  const bool has_room = !call.scratch.empty() && call.scratch.back();
  const int64_t room = has_room ? call.scratch.back().shape.NumElements() : 0;
  if (plan.workspace_bytes > room) {
    return Error::Unsupported(Format("{}: cuDNN needs {} bytes of workspace, the plan has {}", name,
                                     plan.workspace_bytes, room));
  }
  return static_cast<const AttentionPlan*>(&plan);
}

void Cudnn::Run(const AttentionPlan& base, const OpCall& call, int64_t* seeds,
                cudaStream_t stream) {
  const auto& plan = static_cast<const CudnnPlan&>(base);
  const Problem& p = plan.problem;
  const Operands x = OperandsOf(call);
  HEADROOM_CHECK(p.dropout == 0 || seeds != nullptr, "attention with dropout but no seeds");
  const cudnnStatus_t bound = fe::detail::set_stream(handle_, stream);
  HEADROOM_CHECK(bound == CUDNN_STATUS_SUCCESS,
                 Format("{}: cudnnSetStream: {}", plan.op, fe::detail::get_error_string(bound)));
  std::byte* workspace = plan.workspace_bytes == 0 ? nullptr : call.scratch.back().data;
  for (int64_t chunk = 0; chunk < plan.chunks; ++chunk) {
    std::unordered_map<int64_t, void*> operands;
    const int64_t first = chunk * p.sequences;
    const auto add = [&](Uid uid, const TensorView& view, int64_t rows) {
      if (view) operands[uid] = view.data + first * rows * view.stride() * ElementSize(view.dtype);
    };
    add(kQ, x.q, p.queries);
    add(kK, x.k, p.keys);
    add(kV, x.v, p.keys);
    add(kO, x.o, p.queries);
    add(kDo, x.dout, p.queries);
    add(kDq, x.dq, p.queries);
    add(kDk, x.dk, p.keys);
    add(kDv, x.dv, p.keys);
    if (x.stats) operands[kStats] = x.stats.As<float>() + first * p.heads * p.queries;
    if (p.padded()) {
      operands[kQueryLengths] = plan.full_queries;
      operands[kKeyLengths] = p.lengths ? x.lengths.As<int32_t>() + first : plan.full_keys;
    }
    if (p.dropout > 0) {
      operands[kSeed] = seeds + 2 * chunk;
      operands[kOffset] = seeds + 2 * chunk + 1;
    }
    const fe::error_object status = plan.graph.execute(handle_, operands, workspace);
    HEADROOM_CHECK(status.is_good(), Text(plan.op, status));
  }
}

std::shared_ptr<AttentionLibrary> Create(int capability, std::string& why) {
  if (fe::cudnn_dlhandle == nullptr) {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  }
  if (fe::cudnn_dlhandle == nullptr) {
    why = "libcudnn.so.9 is in no library path";
    return nullptr;
  }
  try {
    const size_t version = fe::detail::get_backend_version();
    if (version < kOldestVersion) {
      why = Format("cuDNN {} is older than 9.6", version);
      return nullptr;
    }
    cudnnHandle_t handle = nullptr;
    if (const cudnnStatus_t status = fe::detail::create_handle(&handle);
        status != CUDNN_STATUS_SUCCESS) {
      why = Format("cuDNN {}: cudnnCreate: {}", version, fe::detail::get_error_string(status));
      return nullptr;
    }
    return std::make_shared<Cudnn>(handle, capability, version);
  } catch (const std::exception& error) {
    why = Format("cuDNN cannot be used: {}", error.what());
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<AttentionLibrary> OpenCudnn(int device, int capability, std::string& why) {
  // Never destroyed: the driver may be gone before the destructors of statics run.
  static auto& libraries = *new std::map<int, std::shared_ptr<AttentionLibrary>>;
  std::shared_ptr<AttentionLibrary>& library = libraries[device];
  if (library == nullptr) library = Create(capability, why);
  return library;
}

}  // namespace headroom::engine::cuda
