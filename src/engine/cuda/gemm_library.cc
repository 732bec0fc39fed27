// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/gemm_library.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/format.h"

namespace headroom::engine::cuda {
namespace {

constexpr int kCandidates = 8;
constexpr int kTimings = 5;
// Milliseconds that a kernel of its own for sums takes at least, in a captured graph.
constexpr float kLeastKernel = 0.004F;

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    default:
      break;
  }
  HEADROOM_CHECK(false, "a matrix product of a type that is no storage type");
}

// What the address is a multiple of, as far as algorithms care. Of a batch it is at most 16: all
// batches of an op shall have the same algorithm, wherever they begin.
uint32_t AlignmentOf(const std::byte* data, const GemmBatch& batch) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  uint32_t alignment = batch.count > 1 ? 16 : 256;
  while (alignment > 2 && address % alignment != 0) alignment /= 2;
  return alignment;
}

// Times what is started on a stream.
class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }

  // Milliseconds, the median of kTimings, after one that is not timed.
  template <typename Job>
  float Median(const Job& job) const {
    std::array<float, kTimings> times{};
    job();
    for (float& time : times) {
      cudaEventRecord(begin_, stream_);
      job();
      cudaEventRecord(end_, stream_);
      cudaEventSynchronize(end_);
      cudaEventElapsedTime(&time, begin_, end_);
    }
    std::sort(times.begin(), times.end());
    return times[kTimings / 2];
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// What a store keeps of an algorithm are its bytes.
static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmAlgorithm::bytes));

}  // namespace

struct GemmLibrary::Functions {
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetVersion) version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check = nullptr;
};

struct GemmLibrary::Algorithm {
  cublasLtMatmulAlgo_t algo{};
};

// One shape: how it is described to cuBLASLt, and the algorithm that runs it.
struct GemmLibrary::Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  Algorithm algo;
  bool served = false;  // there is an algorithm
  float time = 0;       // milliseconds; 0 where it was not timed

  GemmAlgorithm Stored() const {
    GemmAlgorithm stored{.milliseconds = time};
    std::memcpy(stored.bytes.data(), &algo.algo, stored.bytes.size());
    return stored;
  }
};

struct GemmLibrary::Shapes {
  std::map<GemmShape, Plan> plans;
};

GemmLibrary::GemmLibrary()
    : functions_(std::make_unique<Functions>()), shapes_(std::make_unique<Shapes>()) {}

GemmLibrary::~GemmLibrary() {
  const Functions& f = *functions_;
  for (const auto& [shape, plan] : shapes_->plans) {
    for (const cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d}) f.layout_destroy(layout);
    f.desc_destroy(plan.desc);
  }
  if (f.handle != nullptr) f.destroy(f.handle);
}

Result<std::unique_ptr<GemmLibrary>> GemmLibrary::Open() {
  void* library = nullptr;
  for (const char* name :
       {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12"}) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) break;
  }
  if (library == nullptr) {
    return Error::BadInput(
        "cuBLAS is missing: put libcublasLt.so.13 of CUDA 13 into a library path "
        "(LD_LIBRARY_PATH), or add --device cpu");
  }
  std::unique_ptr<GemmLibrary> result(new GemmLibrary);
  Functions& f = *result->functions_;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
  find(f.create, "cublasLtCreate");
  find(f.destroy, "cublasLtDestroy");
  find(f.version, "cublasLtGetVersion");
  find(f.matmul, "cublasLtMatmul");
  find(f.desc_create, "cublasLtMatmulDescCreate");
  find(f.desc_destroy, "cublasLtMatmulDescDestroy");
  find(f.desc_set, "cublasLtMatmulDescSetAttribute");
  find(f.layout_create, "cublasLtMatrixLayoutCreate");
  find(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(f.layout_set, "cublasLtMatrixLayoutSetAttribute");
  find(f.preference_create, "cublasLtMatmulPreferenceCreate");
  find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(f.check, "cublasLtMatmulAlgoCheck");
  if (!complete || f.create(&f.handle) != CUBLAS_STATUS_SUCCESS) {
    return Error::Internal("cuBLAS cannot be used: cublasLtCreate failed");
  }
  return result;
}

int64_t GemmLibrary::version() const { return static_cast<int64_t>(functions_->version()); }

void GemmLibrary::Know(AlgorithmStore known) {
  HEADROOM_CHECK(shapes_->plans.empty(), "algorithms for shapes that have theirs");
  known.Merge(known_);
  known_ = std::move(known);
}

void GemmLibrary::AddChosen(AlgorithmStore& to) const {
  for (const auto& [shape, plan] : shapes_->plans) {
    if (plan.served) to.Add(shape, plan.Stored());
  }
}

namespace {

GemmShape ShapeOf(const GemmProblem& problem) {
  const TensorView& left = problem.left.rows;
  const TensorView& right = problem.right.rows;
  const TensorView& out = problem.out;
  return {out.cols(),
          out.rows(),
          problem.left.turned ? left.rows() : left.cols(),
          left.stride(),
          right.stride(),
          out.stride(),
          problem.left.turned,
          problem.right.turned,
          static_cast<int64_t>(left.dtype),
          static_cast<int64_t>(right.dtype),
          static_cast<int64_t>(out.dtype),
          problem.add,
          problem.tf32,
          problem.bias ? 1 + static_cast<int64_t>(problem.bias.dtype) : 0,
          static_cast<int64_t>(problem.sums_of),
          AlignmentOf(left.data, problem.batch),
          AlignmentOf(right.data, problem.batch),
          AlignmentOf(out.data, problem.batch),
          problem.workspace_bytes,
          problem.batch.count,
          problem.batch.left,
          problem.batch.right,
          problem.batch.out};
}

}  // namespace

// cuBLASLt's matrices lie by columns, so it is asked for the transpose: out^T = right^T left^T.
void GemmLibrary::Describe(const GemmProblem& problem, Plan& plan) const {
  const Functions& f = *functions_;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    f.desc_set(plan.desc, attribute, &value, sizeof(value));
  };
  f.desc_create(&plan.desc, problem.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                CUDA_R_32F);
  set(CUBLASLT_MATMUL_DESC_TRANSA, problem.right.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, problem.left.turned ? CUBLAS_OP_T : CUBLAS_OP_N);
  const auto layout = [&](cublasLtMatrixLayout_t* to, const TensorView& rows, int64_t step) {
    f.layout_create(to, TypeOf(rows.dtype), static_cast<uint64_t>(rows.cols()),
                    static_cast<uint64_t>(rows.rows()), rows.stride());
    if (problem.batch.count == 1) return;
    const auto count = static_cast<int32_t>(problem.batch.count);
    f.layout_set(*to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count));
    f.layout_set(*to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step));
  };
  layout(&plan.a, problem.right.rows, problem.batch.right);
  layout(&plan.b, problem.left.rows, problem.batch.left);
  layout(&plan.d, problem.out, problem.batch.out);
  if (problem.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(problem.bias.dtype));
  }
  if (problem.sums_of != SumsOf::kNone) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE,
        problem.sums_of == SumsOf::kLeft ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, TypeOf(problem.sums.dtype));
  }
}

void GemmLibrary::Choose(const GemmProblem& problem, Plan& plan, cudaStream_t stream) const {
  const Functions& f = *functions_;
  cublasLtMatmulPreference_t preference = nullptr;
  f.preference_create(&preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    f.preference_set(preference, attribute, &value, sizeof(value));
  };
  // Parts of a sum over k are added in float32 and in their order, or there are none.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(problem.workspace_bytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
         AlignmentOf(problem.right.rows.data, problem.batch));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
         AlignmentOf(problem.left.rows.data, problem.batch));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, AlignmentOf(problem.out.data, problem.batch));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, AlignmentOf(problem.out.data, problem.batch));
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int count = 0;
  f.heuristic(f.handle, plan.desc, plan.a, plan.b, plan.d, plan.d, preference, kCandidates,
              candidates.data(), &count);
  f.preference_destroy(preference);
  plan.served = count > 0;
  plan.algo = {candidates[0].algo};
  if (!tuning_) return;
  const Timer timer(stream);
  for (int i = 0; i < count; ++i) {
    const Algorithm algo{candidates[static_cast<size_t>(i)].algo};
    bool good = true;
    const float time = timer.Median(
        [&] { good = good && Run(problem, plan, algo, stream) == CUBLAS_STATUS_SUCCESS; });
    if (!good || (plan.time != 0 && time >= plan.time)) continue;
    plan.time = time;
    plan.algo = algo;
  }
}

bool GemmLibrary::TakeKnown(const GemmProblem& problem, const GemmShape& shape, Plan& plan) const {
  const GemmAlgorithm* known = known_.Find(shape);
  if (known == nullptr) return false;
  const Functions& f = *functions_;
  std::memcpy(&plan.algo.algo, known->bytes.data(), known->bytes.size());
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      f.check(f.handle, plan.desc, plan.a, plan.b, plan.d, plan.d, &plan.algo.algo, &result);
  plan.served = status == CUBLAS_STATUS_SUCCESS && result.state == CUBLAS_STATUS_SUCCESS &&
                result.workspaceSize <= static_cast<size_t>(problem.workspace_bytes);
  plan.time = plan.served ? known->milliseconds : 0;
  return plan.served;
}

int GemmLibrary::Run(const GemmProblem& problem, const Plan& plan, const Algorithm& algo,
                     cudaStream_t stream) const {
  const float one = 1;
  const float beta = problem.add ? 1 : 0;
  return functions_->matmul(functions_->handle, plan.desc, &one, problem.right.rows.data, plan.a,
                            problem.left.rows.data, plan.b, &beta, problem.out.data, plan.d,
                            problem.out.data, plan.d, &algo.algo, problem.workspace,
                            static_cast<size_t>(problem.workspace_bytes), stream);
}

GemmLibrary::Plan& GemmLibrary::PlanOf(const GemmProblem& problem, cudaStream_t stream) {
  const GemmShape shape = ShapeOf(problem);
  auto [found, fresh] = shapes_->plans.try_emplace(shape);
  Plan& plan = found->second;
  if (fresh) Describe(problem, plan);
  const TensorView& epilogue = problem.sums_of == SumsOf::kNone ? problem.bias : problem.sums;
  if (epilogue) {
    functions_->desc_set(plan.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &epilogue.data,
                         sizeof(epilogue.data));
  }
  if (!fresh || TakeKnown(problem, shape, plan)) return plan;
  Choose(problem, plan, stream);
  if (plan.time > 0) timed_.Add(shape, plan.Stored());
  return plan;
}

void GemmLibrary::Multiply(const GemmProblem& problem, cudaStream_t stream) {
  const Plan& plan = PlanOf(problem, stream);
  const int status =
      plan.served ? Run(problem, plan, plan.algo, stream) : CUBLAS_STATUS_NOT_SUPPORTED;
  HEADROOM_CHECK(status == CUBLAS_STATUS_SUCCESS,
                 Format("cublasLtMatmul failed with {} on {} x {}", status, problem.out.rows(),
                        problem.out.cols()));
}

bool GemmLibrary::MultiplyWithSums(const GemmProblem& problem, cudaStream_t stream) {
  const Plan& both = PlanOf(problem, stream);
  if (!both.served) return false;
  GemmProblem alone = problem;
  alone.sums_of = SumsOf::kNone;
  const Plan& plain = PlanOf(alone, stream);
  if (both.time > plain.time + kLeastKernel) return false;
  return Run(problem, both, both.algo, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace headroom::engine::cuda
