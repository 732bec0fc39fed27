// SPDX-License-Identifier: Apache-2.0
//
// Runtime: the state of the pretended PyTorch process.
//
// It owns the device memory (an AllocatorModel whose events go to a Ledger), the library
// workspaces, and what PyTorch keeps in thread-local state: grad mode, autocast, saved-tensor
// hooks. The scopes below set it for a region, as Python's `with` does.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ledger/ledger.h"
#include "predict/allocation_trace.h"
#include "predict/op_observer.h"
#include "predict/predict.h"
#include "predict/tensor.h"

namespace headroom::predict {

// Thrown inside predict/ when the allocator has nothing left; Predict() turns it into a result.
struct OutOfMemoryException {
  OutOfMemory what;
};

// torch.autocast: ops run in `dtype`, and each fp32 leaf that requires grad is cast once and
// cached.
struct AutocastState {
  bool enabled = false;
  DType dtype = DType::kBFloat16;
  bool cache_enabled = true;
  int depth = 0;  // nested contexts; the cache is dropped when the outermost closes
  std::unordered_map<const TensorImpl*, Tensor> cache;
};

// torch.autograd.graph.saved_tensors_hooks: what autograd stores instead of a saved tensor.
class SavedTensorHooks {
 public:
  virtual ~SavedTensorHooks() = default;
  // Called as a tensor is saved; returns what gives it back when backward asks.
  virtual std::function<Tensor()> Pack(const Tensor& tensor) = 0;
};

// PyTorch runs forward on the main thread and backward on the engine's device thread; each has its
// own cuBLAS handle and so its own workspace.
enum class Thread : uint8_t { kMain, kBackward };

// Sees the run pass through modules and gradients arrive: how wrappers like DDP and FSDP hook in.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // A module's forward begins and ends; nested, as the modules are.
  virtual void EnterForward(ModuleId module) = 0;
  virtual void LeaveForward(ModuleId module) = 0;
  // A node of backward that was recorded in `module` is about to run.
  virtual void BeforeNode(ModuleId module) = 0;
};

class Runtime {
 public:
  // `observer` is told every kernel; null: nobody is.
  explicit Runtime(const Platform& platform, OpObserver* observer = nullptr);
  Runtime(const Runtime&) = delete;

  const Platform& platform() const { return platform_; }
  Ledger& ledger() { return ledger_; }
  // Ends the run: what is freed from here on (the process exits) is no event any more.
  Ledger TakeLedger();
  // What was asked of the allocator until then. REQUIRES: TakeLedger was called.
  AllocationTrace TakeTrace() { return std::move(trace_); }

  // ---- Device memory ----

  struct DeviceBlock {
    AllocatorModel::Handle handle{};
    BlockId id{};
  };
  // Throws OutOfMemoryException when the limit is reached.
  DeviceBlock AllocBlock(Bytes bytes);
  void FreeBlock(const DeviceBlock& block);
  void EmptyCache();
  void KernelsLoaded();
  // The CUDA stream that is current from here on; 0 is the default one.
  void UseStream(int stream);

  // Memory an op needs only while it runs, freed with the returned storage.
  Ref<Storage> Scratch(int64_t bytes);

  // What the first matrix product of a thread allocates and keeps: cuBLAS's workspace, and for
  // products with a fused bias cuBLASLt's as well.
  enum class Gemm { kPlain, kFusedBias };
  void EnsureCublasWorkspace(Gemm gemm);

  // ---- Attribution: what new blocks are reported as ----

  Component component = Component::kActivations;
  Kind kind = Kind::kOther;
  ModuleId module{};
  std::string_view phase = "load";

  OpId op() const { return op_; }
  void set_op(OpId op) { op_ = op; }
  // Interned once per literal.
  OpId InternOp(const char* name);

  // Tells the observer of one kernel (op_report.h counts what it does).
  bool observed() const { return observer_ != nullptr; }
  void ReportOp(const char* name, const OpWork& work);

  // ---- Thread-local state of PyTorch ----

  bool grad_enabled = true;
  bool training = true;  // model.train() or model.eval(): whether modules drop out
  bool in_backward = false;
  AutocastState autocast;
  SavedTensorHooks* hooks = nullptr;
  RunObserver* run_observer = nullptr;
  Thread thread = Thread::kMain;
  // Asked before each step; false ends the run there. Unset: all steps.
  KeepGoing keep_going;
  // at::sequence_number, one counter a thread.
  uint64_t NextSequence() { return sequence_[static_cast<size_t>(thread)]++; }
  // A number for a call of Backward, from 1.
  uint64_t NextGraphTask() { return ++graph_tasks_; }

 private:
  Platform platform_;
  Ledger ledger_;
  bool ended_ = false;
  std::unique_ptr<AllocatorModel> allocator_;
  AllocationTrace trace_;
  OpObserver* observer_;
  Bytes reserved_;
  OpId op_{};
  std::unordered_map<const char*, OpId> op_ids_;
  struct KnownOp {
    const char* name = nullptr;
    OpId id{};
  };
  std::array<KnownOp, 256> known_ops_{};  // of op_ids_, by address
  std::array<uint64_t, 2> sequence_{};
  uint64_t graph_tasks_ = 0;
  std::array<Ref<Storage>, 2> cublas_workspace_;
  std::array<Ref<Storage>, 2> cublaslt_workspace_;
};

// Sets a value for the lifetime of the scope.
template <typename T>
class Scoped {
 public:
  Scoped(T& target, T value) : target_(target), before_(std::move(target)) {
    target_ = std::move(value);
  }
  ~Scoped() { target_ = std::move(before_); }
  Scoped(const Scoped&) = delete;

 private:
  T& target_;
  T before_;
};

// Names the op that allocates, for the ledger. Inside backward the node's name stands instead.
class OpScope {
 public:
  OpScope(Runtime& runtime, const char* name);
  ~OpScope() { runtime_.set_op(before_); }
  OpScope(const OpScope&) = delete;

 private:
  Runtime& runtime_;
  OpId before_;
};

// with torch.autocast("cuda", dtype): nests; the cache goes with the outermost.
class AutocastScope {
 public:
  AutocastScope(Runtime& runtime, bool enabled, DType dtype);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  Runtime& runtime_;
  bool enabled_before_;
  DType dtype_before_;
};

// torch.empty on the device. With `strides` unset, contiguous.
Tensor Empty(Runtime& runtime, const Shape& shape, DType dtype);
Tensor EmptyStrided(Runtime& runtime, const Shape& shape, const Shape& strides, DType dtype);

}  // namespace headroom::predict
