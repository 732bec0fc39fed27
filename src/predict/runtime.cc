// SPDX-License-Identifier: Apache-2.0
#include "predict/runtime.h"

#include <utility>

namespace headroom::predict {
namespace {

// getChosenWorkspaceSize / parseChosenWorkspaceSize, aten/src/ATen/cuda/CublasHandlePool.cpp,
// PyTorch 2.11.0: ":4096:8" on compute capability 9.x, 10.x and 12.x, else ":4096:2:16:8".
Bytes CublasWorkspaceSize(const Gpu& gpu) {
  const bool large = gpu.compute_major == 9 || gpu.compute_major == 10 || gpu.compute_major == 12;
  return large ? KiB(4096 * 8) : KiB(4096 * 2 + 16 * 8);
}

// _getWorkspaceSize for cuBLASLt, same file: CUBLASLT_WORKSPACE_SIZE, 1,024 KiB by default.
constexpr Bytes kCublasLtWorkspace = KiB(1024);

}  // namespace

Runtime::Runtime(const Platform& platform, OpObserver* observer)
    : platform_(platform),
      allocator_(MakeAllocator(platform.allocator, platform.memory_limit)),
      trace_(platform.allocator),
      observer_(observer) {
  ledger_.Reserve(1 << 16);
}

Runtime::DeviceBlock Runtime::AllocBlock(Bytes bytes) {
  trace_.Alloc(bytes);
  const std::optional<AllocatorModel::Allocation> allocation = allocator_->Alloc(bytes);
  const Bytes change = allocator_->reserved() - reserved_;
  if (change != Bytes(0)) {
    ledger_.ChangeReserved(change);
    reserved_ += change;
    trace_.NoteReserved(reserved_);
  }
  if (!allocation) {
    ended_ = true;  // What the unwinding frees is no part of the run.
    throw OutOfMemoryException{{bytes, ledger_.allocated(), reserved_, std::string(phase),
                                ledger_.ModulePath(module), ledger_.OpName(op_)}};
  }
  return {allocation->handle, ledger_.Alloc(allocation->bytes, component, kind, module, op_)};
}

Ledger Runtime::TakeLedger() {
  ended_ = true;
  return std::move(ledger_);
}

void Runtime::FreeBlock(const DeviceBlock& block) {
  if (ended_) return;
  // Blocks are numbered in the ledger as allocations are in the trace.
  trace_.Free(static_cast<uint32_t>(block.id));
  allocator_->Free(block.handle);
  ledger_.Free(block.id);
}

void Runtime::KernelsLoaded() {
  trace_.Note(AllocationTrace::Mark::kKernelsLoaded);
  allocator_->KernelsLoaded();
}

void Runtime::UseStream(int stream) {
  const int mark = static_cast<int>(AllocationTrace::Mark::kStream) + stream;
  trace_.Note(static_cast<AllocationTrace::Mark>(mark));
  allocator_->UseStream(stream);
}

void Runtime::ReportOp(const char* name, const OpWork& work) {
  if (observer_ != nullptr)
    observer_->OnOp({name, ledger_.ModulePath(module), phase, work, in_backward});
}

void Runtime::EmptyCache() {
  trace_.Note(AllocationTrace::Mark::kEmptyCache);
  allocator_->EmptyCache();
  const Bytes change = allocator_->reserved() - reserved_;
  if (change != Bytes(0)) ledger_.ChangeReserved(change);
  reserved_ += change;
}

Ref<Storage> Runtime::Scratch(int64_t bytes) {
  const Scoped as_temporary(component, Component::kTemporaries);
  return MakeRef<Storage>(*this, Bytes(bytes));
}

void Runtime::EnsureCublasWorkspace(Gemm gemm) {
  const auto index = static_cast<size_t>(thread);
  const Scoped as_workspace(component, Component::kWorkspace);
  const Scoped plain(kind, Kind::kOther);
  if (!cublas_workspace_[index]) {
    trace_.Note(AllocationTrace::Mark::kCublasHandleCreated);
    allocator_->CublasHandleCreated();
    cublas_workspace_[index] = MakeRef<Storage>(*this, CublasWorkspaceSize(platform_.gpu));
  }
  if (gemm == Gemm::kFusedBias && !cublaslt_workspace_[index]) {
    cublaslt_workspace_[index] = MakeRef<Storage>(*this, kCublasLtWorkspace);
  }
}

OpId Runtime::InternOp(const char* name) {
  KnownOp& known = known_ops_[reinterpret_cast<uintptr_t>(name) / 8 % known_ops_.size()];
  if (known.name == name) return known.id;
  const auto [entry, added] = op_ids_.try_emplace(name, OpId{});
  if (added) entry->second = ledger_.InternOp(name);
  known = {name, entry->second};
  return entry->second;
}

OpScope::OpScope(Runtime& runtime, const char* name) : runtime_(runtime), before_(runtime.op()) {
  if (!runtime.in_backward) runtime.set_op(runtime.InternOp(name));
}

AutocastScope::AutocastScope(Runtime& runtime, bool enabled, DType dtype)
    : runtime_(runtime),
      enabled_before_(runtime.autocast.enabled),
      dtype_before_(runtime.autocast.dtype) {
  runtime.autocast.enabled = enabled;
  runtime.autocast.dtype = dtype;
  ++runtime.autocast.depth;
}

AutocastScope::~AutocastScope() {
  AutocastState& state = runtime_.autocast;
  if (--state.depth == 0) {
    state.cache.clear();
  }
  state.enabled = enabled_before_;
  state.dtype = dtype_before_;
}

Tensor EmptyStrided(Runtime& runtime, const Shape& shape, const Shape& strides, DType dtype) {
  const Bytes bytes(shape.NumElements() * ElementSize(dtype));
  return Tensor(MakeRef<TensorImpl>(MakeRef<Storage>(runtime, bytes), dtype, shape, strides));
}

Tensor Empty(Runtime& runtime, const Shape& shape, DType dtype) {
  return EmptyStrided(runtime, shape, ContiguousStrides(shape), dtype);
}

}  // namespace headroom::predict
