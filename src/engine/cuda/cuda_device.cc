// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <limits>
#include <utility>
#include <vector>

#include "engine/cpu/block_quantiser.h"
#include "engine/cuda/cuda_ops.h"
#include "engine/cuda/cuda_state.h"

namespace headroom::engine {
namespace {

constexpr int kLeastCapability = 80;

Error DeviceError(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0) return Error::BadInput("no NVIDIA driver: add --device cpu");
    return Error::BadInput(
        Format("the NVIDIA driver is too old: it is of CUDA {}.{}, and this program of CUDA {}.{}",
               driver / 1000, driver / 10 % 100, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100));
  }
  if (error == cudaErrorNoDevice) return Error::BadInput("no GPU: add --device cpu");
  return Error::Internal(Format("the GPU cannot be used: {}", cudaGetErrorString(error)));
}

// Values and middles of both quantisers, as the update's kernel reads them.
std::vector<float> QuantiserMaps() {
  std::vector<float> maps;
  for (const BlockQuantiser* quantiser : {&BlockQuantiser::Signed(), &BlockQuantiser::Unsigned()}) {
    for (int code = 0; code < 256; ++code) {
      maps.push_back(quantiser->Value(static_cast<uint8_t>(code)));
    }
    for (int code = 0; code < 255; ++code) {
      maps.push_back((quantiser->Value(static_cast<uint8_t>(code)) +
                      quantiser->Value(static_cast<uint8_t>(code + 1))) /
                     2);
    }
    maps.push_back(std::numeric_limits<float>::infinity());
  }
  return maps;
}

}  // namespace

Status CudaDevice::State::OpenGemm(const cudaDeviceProp& properties) {
  HEADROOM_ASSIGN_OR_RETURN(gemm, cuda::GemmLibrary::Open());
  int driver = 0;
  cudaDriverGetVersion(&driver);
  identity = {.gpu = name,
              .compute_capability = Format("{}.{}", properties.major, properties.minor),
              .driver = driver,
              .cublaslt = gemm->version()};
  if (!options.algorithms.empty()) gemm->Know(cuda::ReadStore(options.algorithms, identity));
  return {};
}

void CudaDevice::State::KeepTimed() const {
  if (options.algorithms.empty()) return;
  cuda::AlgorithmStore store(identity);
  store.Merge(gemm->timed());
  if (!store.algorithms().empty()) (void)cuda::AddToStore(options.algorithms, store);
}

void CudaDevice::State::OpenAttention([[maybe_unused]] int capability) {
  no_attention = "not asked for";
  if (!options.cudnn) return;
#ifdef HEADROOM_HAS_CUDNN
  attention = cuda::OpenCudnn(index, capability, no_attention);
#else
  no_attention = "this program was built without cuDNN";
#endif
}

CudaDevice::State::~State() {
  // A run that failed may have left copies under way.
  if (stream != nullptr) cudaStreamSynchronize(stream);
  cudaFree(halted);
  cudaFree(arena);
  cudaFree(scalars);
  cudaFree(quantiser_maps);
  cudaFree(counters);
  if (stream != nullptr) cudaStreamDestroy(stream);
}

int CudaDeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

CudaDevice::CudaDevice() : state_(std::make_unique<State>()) {}
CudaDevice::~CudaDevice() = default;
const std::string& CudaDevice::name() const { return state_->name; }
int CudaDevice::index() const { return state_->index; }

Result<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index, const CudaOptions& options) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return DeviceError(error);
  }
  if (index < 0 || index >= count) {
    return Error::BadInput(Format("no GPU {}: this machine has {}", index, count));
  }
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, index);
  if (properties.major * 10 + properties.minor < kLeastCapability) {
    return Error::Unsupported(
        Format("{} has compute capability {}.{}; the CUDA backend needs 8.0 (Ampere) or newer",
               properties.name, properties.major, properties.minor));
  }
  std::unique_ptr<CudaDevice> device(new CudaDevice);
  State& state = *device->state_;
  state.index = index;
  state.options = options;
  state.name = properties.name;
  cudaError_t error = cudaSetDevice(index);
  if (error == cudaSuccess) {
    error = cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking);
  }
  if (error == cudaSuccess) {
    error = cudaMalloc(reinterpret_cast<void**>(&state.scalars), sizeof(StepScalars));
  }
  if (error == cudaSuccess) error = state.host.Open();
  if (error != cudaSuccess) return DeviceError(error);
  state.quantiser_maps = OnDevice(QuantiserMaps());
  state.counters = OnDevice(std::vector<uint32_t>(cuda::kCounters));
  state.halted = OnDevice(std::vector<uint32_t>(1));
  HEADROOM_RETURN_IF_ERROR(state.OpenGemm(properties));
  state.OpenAttention(properties.major * 10 + properties.minor);
  return device;
}

Bytes CudaDevice::free_memory() const {
  size_t free = 0;
  size_t total = 0;
  cudaMemGetInfo(&free, &total);
  return Bytes(static_cast<int64_t>(free));
}

Status CudaDevice::Allocate(Bytes size) {
  HEADROOM_CHECK(state_->arena == nullptr, "a second arena on one device");
  const Bytes free = free_memory();
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<size_t>(size.count())) != cudaSuccess) {
    cudaGetLastError();
    return Error::BadInput(
        Format("the arena of {} is more than the {} that GPU {} has free: {} are missing; add "
               "--memory-budget {}MiB",
               FormatBytes(size), FormatBytes(free), state_->index, FormatBytes(size - free),
               free.count() >> 20));
  }
  state_->arena = static_cast<std::byte*>(data);
  state_->arena_size = size.count();
  Must(cudaMemsetAsync(data, 0, static_cast<size_t>(size.count()), state_->stream),
       "zeroing the arena");
  return Synchronize();
}

Result<std::span<std::byte>> CudaDevice::AllocateHost(Bytes size) {
  return state_->host.Allocate(size);
}

void CudaDevice::Mark(int mark) { Must(state_->host.Mark(mark, state_->stream), "setting a mark"); }

Status CudaDevice::Await(int mark) const { return StatusOf(state_->host.Await(mark)); }

Status CudaDevice::Synchronize() const { return StatusOf(cudaStreamSynchronize(state_->stream)); }

Status CudaDevice::StatusOf(int error) const {
  if (error == cudaSuccess) return {};
  const char* reason = cudaGetErrorString(static_cast<cudaError_t>(error));
  return Error::Internal(Format("GPU {} failed: {}", state_->index, reason));
}

std::unique_ptr<DeviceExecutor> CudaDevice::NewExecutor(const graph::Graph& graph,
                                                        const graph::MemoryPlan& plan) {
  return std::make_unique<CudaExecutor>(*this, graph, plan, state_->options);
}

std::string CudaDevice::Algorithms() const {
  cuda::AlgorithmStore store(state_->identity);
  state_->gemm->AddChosen(store);
  return store.algorithms().empty() ? "" : store.ToText();
}

Status CudaDevice::UseAlgorithms(std::string_view text) {
  HEADROOM_ASSIGN_OR_RETURN(cuda::AlgorithmStore store,
                            cuda::AlgorithmStore::Parse(text, "the algorithms"));
  if (store.identity() != state_->identity) {
    return Error::BadInput(Format("they are of {}, and this is {}", store.identity().ToString(),
                                  state_->identity.ToString()));
  }
  state_->gemm->Know(std::move(store));
  return {};
}

int64_t CudaDevice::timed_shapes() const {
  return static_cast<int64_t>(state_->gemm->timed().algorithms().size());
}

}  // namespace headroom::engine
