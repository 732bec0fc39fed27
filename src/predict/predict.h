// SPDX-License-Identifier: Apache-2.0
//
// Predict: the memory of a real PyTorch / Hugging Face run, without running it.
//
// The run is executed shape-only: every op of the model's forward allocates what PyTorch's eager
// mode allocates, autograd saves what PyTorch saves and frees it in the same order, and the events
// go through a model of PyTorch's caching allocator. See docs/architecture.md.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "ledger/ledger.h"
#include "model/catalogue.h"
#include "model/config.h"
#include "model/recipe.h"
#include "predict/allocation_trace.h"
#include "predict/allocator_options.h"

namespace headroom {

class OpObserver;

// What the run happens on.
struct Platform {
  // The newest measured versions; others are taken as these, which Prediction::assumptions says.
  std::string torch_version = "2.11.0";
  std::string transformers_version = "5.17.0";
  Gpu gpu;
  AllocatorOptions allocator;
  // The most the allocator may reserve; unset: as much as it wants. With it the allocator gives
  // cached blocks back and retries, as PyTorch's does, before it declares out of memory.
  std::optional<Bytes> memory_limit;
};

// The platform of hf_memory.jsonl: one H200, PyTorch 2.11.0, transformers 5.17.0.
Platform MeasuredPlatform();

// Where a run under a memory limit died.
struct OutOfMemory {
  Bytes requested;
  Bytes allocated;
  Bytes reserved;
  std::string phase;  // "forward", "backward", "optimizer", …
  std::string module;
  std::string op;
};

struct Prediction {
  Ledger ledger;
  int64_t parameters = 0;  // tied weights once
  int64_t trainable = 0;
  Bytes buffers;
  Bytes after_model_allocated;  // right after model.to("cuda")
  Bytes after_model_reserved;
  AttnImplementation attn_used = AttnImplementation::kEager;
  std::vector<std::string> assumptions;  // one line each, most important first
  std::optional<OutOfMemory> out_of_memory;
  // What the allocator was asked for, up to what it had no memory for: tells what the run needs
  // under a cap.
  AllocationTrace trace;

  // What the process's figure in NVML peaks at: peak reserved and what lies outside.
  Bytes device() const { return ledger.peak_reserved() + ledger.context(); }
};

// Asked before each optimizer step, numbered from 1; false ends the run before it.
using KeepGoing = std::function<bool(int step)>;

// Plays `recipe` on `config`. Fails (kUnsupported) on an architecture or recipe that is not
// modelled, and (kBadInput) on one that cannot run: a sequence beyond the positions, sizes whose
// memory would not fit in 62 bits, a precision the GPU does not have. `observer`, if any, is told
// every kernel of the run.
Result<Prediction> Predict(const ModelConfig& config, const Recipe& recipe,
                           const Platform& platform, OpObserver* observer = nullptr,
                           const KeepGoing& keep_going = {});

// model_types that Predict knows, sorted.
std::vector<std::string_view> PredictableModelTypes();

}  // namespace headroom
