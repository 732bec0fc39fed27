// SPDX-License-Identifier: Apache-2.0
//
// The torch.nn modules that models are built from, and the weights they share.
//
// A model is built against Weights: every parameter and buffer of its ParameterTable, on the
// device. A Scope is a place in that tree; modules find their parameters by name, so that the table
// and the forward cannot disagree:
//
//   Linear query(attention / "self" / "query");
//   Tensor q = query(hidden_states);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/config.h"
#include "model/parameter_table.h"
#include "model/recipe.h"
#include "predict/ops.h"
#include "predict/runtime.h"
#include "predict/tensor.h"

namespace headroom::predict {

struct LoraAdapter;     // predict/adapters.h
class QuantizedMatrix;  // predict/quantization.h

// The parameters and buffers of a model.
class Weights {
 public:
  // model.to("cuda"): allocates in the order of nn.Module._apply: children before their parent's
  // own parameters, and those before its buffers.
  // With `shards`, parameters have no memory until something gathers them, padded so that their
  // rows divide among so many.
  Weights(Runtime& runtime, const ParameterTable& table, DType dtype, int64_t shards = 0);
  // What `recipe` loads, in the way it loads it; see predict/load.h.
  Weights(Runtime& runtime, const ParameterTable& table, const Recipe& recipe);

  Runtime& runtime() const { return runtime_; }
  // REQUIRES: the table has the name.
  const Tensor& Get(const std::string& name) const;
  bool Has(const std::string& name) const { return by_name_.contains(name); }
  // The weight `name` as a quantised layer holds it, or null.
  const QuantizedMatrix* FindQuantized(const std::string& name) const;
  // Parameters in the order of named_parameters().
  const std::vector<Tensor>& parameters() const { return parameters_; }
  const std::vector<std::string>& parameter_names() const { return names_; }

  // ---- Fine-tuning ----

  // prepare_model_for_kbit_training: parameters in 16 bit that are not quantised go to fp32.
  void PrepareForKbitTraining();
  // get_peft_model on a model that is on the device: the parameters are those of `adapted` now, and
  // what it adds is made there, adapters first in the type of the products and then in fp32.
  void Adapt(const ParameterTable& adapted, const Recipe& recipe);
  // Finds the adapters among the parameters, which a table of ApplyLora names.
  void AttachAdapters(const LoraConfig& lora);
  // The adapter of the module at `path`, or null.
  const LoraAdapter* FindAdapter(const std::string& path) const;
  // model.enable_input_require_grads(): outputs of the embeddings with this many rows ask for a
  // gradient. 0: off.
  void set_input_require_grads(int64_t rows) { input_grad_rows_ = rows; }
  int64_t input_grad_rows() const { return input_grad_rows_; }

 private:
  // Puts a float32 copy in the place of parameter `i`, if that is in 16 bit.
  void CastHalfToFloat(size_t i);

  Runtime& runtime_;
  std::unordered_map<std::string, Tensor> by_name_;
  std::unordered_map<std::string, std::shared_ptr<const QuantizedMatrix>> quantized_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::shared_ptr<const LoraAdapter>> adapters_;
  int64_t input_grad_rows_ = 0;
};

// A place in the module tree.
class Scope {
 public:
  explicit Scope(const Weights& weights) : weights_(&weights) {}

  Scope operator/(std::string_view child) const;
  Scope operator[](int64_t index) const { return *this / std::to_string(index); }

  Runtime& runtime() const { return weights_->runtime(); }
  const std::string& path() const { return path_; }
  ModuleId id() const { return runtime().ledger().InternModule(path_); }
  // The parameter or buffer `name` of this module.
  Tensor Get(std::string_view name) const;
  // The same, or undefined when the module has none (a linear layer without bias).
  Tensor Find(std::string_view name) const;
  // This module's adapter, or null.
  const LoraAdapter* Adapter() const { return weights_->FindAdapter(path_); }
  int64_t input_grad_rows() const { return weights_->input_grad_rows(); }
  // This module's weight where it is quantised, else null.
  const QuantizedMatrix* QuantizedWeight() const;

 private:
  const Weights* weights_;
  std::string path_;
};

// Attributes what is allocated during a module's forward to it.
class InModule {
 public:
  InModule(Runtime& runtime, ModuleId id) : runtime_(runtime), module_(runtime.module, id) {
    if (runtime.run_observer != nullptr) runtime.run_observer->EnterForward(id);
  }
  ~InModule() {
    if (runtime_.run_observer != nullptr) runtime_.run_observer->LeaveForward(runtime_.module);
  }
  InModule(const InModule&) = delete;

 private:
  Runtime& runtime_;
  Scoped<ModuleId> module_;
};

class Linear {
 public:
  explicit Linear(const Scope& scope) : Linear(scope, scope.Get("weight"), scope.Find("bias")) {
    quantized_ = scope.QuantizedWeight();
  }
  // With a weight that lives elsewhere: a tied head.
  Linear(const Scope& scope, Tensor weight) : Linear(scope, std::move(weight), Tensor()) {}
  Linear(const Scope& scope, Tensor weight, Tensor bias)
      : id_(scope.id()),
        weight_(std::move(weight)),
        bias_(std::move(bias)),
        adapter_(scope.Adapter()) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    return adapter_ == nullptr ? Base(x) : Adapted(x);
  }

 private:
  Tensor Base(const Tensor& x) const;
  Tensor Adapted(const Tensor& x) const;

  ModuleId id_;
  Tensor weight_;
  Tensor bias_;
  const QuantizedMatrix* quantized_ = nullptr;
  const LoraAdapter* adapter_;
};

// Conv1D of transformers' pytorch_utils.py: addmm with a weight of [in, out].
class Conv1d {
 public:
  explicit Conv1d(const Scope& scope)
      : id_(scope.id()),
        weight_(scope.Get("weight")),
        bias_(scope.Get("bias")),
        quantized_(scope.QuantizedWeight()),
        adapter_(scope.Adapter()) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    return adapter_ == nullptr ? Base(x) : Adapted(x);
  }

 private:
  Tensor Base(const Tensor& x) const;
  Tensor Adapted(const Tensor& x) const;

  ModuleId id_;
  Tensor weight_;
  Tensor bias_;
  const QuantizedMatrix* quantized_;
  const LoraAdapter* adapter_;
};

class Embedding {
 public:
  explicit Embedding(const Scope& scope)
      : id_(scope.id()),
        weight_(scope.Get("weight")),
        adapter_(scope.Adapter()),
        wants_grad_(weight_.size(0) == scope.input_grad_rows()) {}

  Tensor operator()(const Tensor& indices) const;
  const Tensor& weight() const { return weight_; }

 private:
  ModuleId id_;
  Tensor weight_;
  const LoraAdapter* adapter_;
  bool wants_grad_;
};

class LayerNorm {
 public:
  explicit LayerNorm(const Scope& scope)
      : id_(scope.id()), weight_(scope.Get("weight")), bias_(scope.Find("bias")) {}

  Tensor operator()(const Tensor& x) const {
    const InModule in(x.runtime(), id_);
    return LayerNormOp(x, weight_, bias_);
  }

 private:
  ModuleId id_;
  Tensor weight_;
  Tensor bias_;
};

// transformers' ACT2FN: the activation of a config's name. Fails (kUnsupported) on unknown names.
using Activation = Tensor (*)(const Tensor& x);
Result<Activation> FindActivation(std::string_view name);

// NewGELUActivation ("gelu_new"): written out in element-wise ops.
Tensor GeluNew(const Tensor& x);

}  // namespace headroom::predict
