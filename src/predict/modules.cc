// SPDX-License-Identifier: Apache-2.0
#include "predict/modules.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/nearest.h"
#include "model/lora.h"
#include "model/module_list.h"
#include "predict/adapters.h"
#include "predict/quantization.h"

namespace headroom::predict {
namespace {

// One module of the tree: its own tensors and its children, in order of registration.
struct ModuleNode {
  std::vector<const ParameterSpec*> parameters;
  std::vector<const ParameterSpec*> buffers;
  std::vector<std::string> child_order;
  std::map<std::string, std::unique_ptr<ModuleNode>, std::less<>> children;

  ModuleNode& Child(std::string_view name) {
    auto child = children.find(name);
    if (child == children.end()) {
      child = children.emplace(std::string(name), std::make_unique<ModuleNode>()).first;
      child_order.emplace_back(name);
    }
    return *child->second;
  }
};

ModuleNode BuildTree(const ParameterTable& table) {
  ModuleNode root;
  for (const ParameterSpec& spec : table.entries()) {
    ModuleNode* module = &root;
    std::string_view rest = spec.name;
    for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      module = &module->Child(rest.substr(0, dot));
      rest.remove_prefix(dot + 1);
    }
    (spec.is_buffer ? module->buffers : module->parameters).push_back(&spec);
  }
  return root;
}

template <typename Visit>
void Apply(const ModuleNode& module, const std::string& path, const Visit& visit) {
  for (const std::string& name : module.child_order) {
    const std::string child = path.empty() ? name : path + "." + name;
    Apply(*module.children.find(name)->second, child, visit);
  }
  for (const ParameterSpec* spec : module.parameters) visit(path, *spec);
  for (const ParameterSpec* spec : module.buffers) visit(path, *spec);
}

// A parameter whose storage comes later, with room for `shards` equal parts of its rows.
Tensor WithoutMemory(Runtime& runtime, const Shape& shape, DType dtype, int64_t shards) {
  Shape padded = shape;
  if (padded.rank() > 0) padded[0] = (padded[0] + shards - 1) / shards * shards;
  const Bytes bytes(padded.NumElements() * ElementSize(dtype));
  return Tensor(MakeRef<TensorImpl>(MakeRef<Storage>(runtime, bytes, Storage::Deferred{}), dtype,
                                    shape, ContiguousStrides(shape)));
}

}  // namespace

Weights::Weights(Runtime& runtime, const ParameterTable& table, DType dtype, int64_t shards)
    : runtime_(runtime) {
  const Scoped component(runtime.component, Component::kWeights);
  const Scoped module(runtime.module, runtime.module);
  const OpScope op(runtime, "nn.Module.to");
  Apply(BuildTree(table), "", [&](const std::string& path, const ParameterSpec& spec) {
    runtime.module = runtime.ledger().InternModule(path);
    runtime.component = spec.is_buffer ? Component::kInputs : Component::kWeights;
    const DType type = spec.TypeIn(dtype);
    Tensor tensor = shards > 0 && !spec.is_buffer ? WithoutMemory(runtime, spec.shape, type, shards)
                                                  : Empty(runtime, spec.shape, type);
    tensor.impl()->leaf_requires_grad = !spec.is_buffer && !spec.frozen;
    by_name_.emplace(spec.name, tensor);
    // Modules know their parameters by the names that the model had before it was adapted.
    std::string before = PathBeforeLora(spec.name);
    if (!before.empty()) by_name_.emplace(std::move(before), tensor);
  });
  for (const ParameterSpec& spec : table.entries()) {
    if (spec.is_buffer) continue;
    parameters_.push_back(by_name_.at(spec.name));
    names_.push_back(spec.name);
  }
}

const Tensor& Weights::Get(const std::string& name) const {
  const auto found = by_name_.find(name);
  HEADROOM_CHECK(found != by_name_.end(), "no parameter " + name);
  return found->second;
}

void Weights::CastHalfToFloat(size_t i) {
  if (!IsHalf(parameters_[i].dtype())) return;
  runtime_.module = runtime_.ledger().InternModule(ParentPath(names_[i]));
  const Tensor cast = ToCopy(parameters_[i], DType::kFloat32);
  parameters_[i] = cast;
  by_name_[names_[i]] = cast;
}

void Weights::PrepareForKbitTraining() {
  const OpScope op(runtime_, "prepare_model_for_kbit_training");
  const Scoped component(runtime_.component, Component::kWeights);
  const Scoped module(runtime_.module, runtime_.module);
  const Scoped no_grad(runtime_.grad_enabled, false);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!quantized_.contains(names_[i])) CastHalfToFloat(i);
  }
  runtime_.EmptyCache();
}

void Weights::Adapt(const ParameterTable& adapted, const Recipe& recipe) {
  const OpScope op(runtime_, "get_peft_model");
  const Scoped component(runtime_.component, Component::kWeights);
  const Scoped module(runtime_.module, runtime_.module);
  const Scoped no_grad(runtime_.grad_enabled, false);
  // _get_base_layer_device_and_dtype: a 4-bit layer has its compute type; int8 is no type to cast
  // to.
  const bool is_int8 = recipe.quantization.kind == Quantization::Kind::kInt8;
  const bool is_4bit = recipe.quantization.kind != Quantization::Kind::kNone && !is_int8;
  const DType made_in = is_int8   ? DType::kFloat32
                        : is_4bit ? recipe.quantization.compute_dtype
                                  : recipe.weights_dtype.value_or(DType::kFloat32);
  names_.clear();
  parameters_.clear();
  std::vector<size_t> adapters;
  for (const ParameterSpec& spec : adapted.entries()) {
    if (spec.is_buffer) continue;
    runtime_.module = runtime_.ledger().InternModule(ParentPath(spec.name));
    const std::string before = PathBeforeLora(spec.name);
    Tensor tensor;
    if (spec.dtype) {
      tensor = Empty(runtime_, spec.shape, made_in);
      adapters.push_back(names_.size());
    } else {
      const auto old = by_name_.find(before);
      const bool is_copy = spec.name.find(".modules_to_save.") != std::string::npos;
      if (old != by_name_.end() && !is_copy) {
        tensor = old->second;
      } else {
        const DType dtype = recipe.kbit ? DType::kFloat32 : made_in;
        tensor = Empty(runtime_, spec.shape, dtype);
        if (!before.empty()) by_name_[before] = tensor;
      }
    }
    tensor.impl()->leaf_requires_grad = !spec.frozen;
    by_name_[spec.name] = tensor;
    names_.push_back(spec.name);
    parameters_.push_back(tensor);
  }
  for (const size_t i : adapters) {
    CastHalfToFloat(i);
    parameters_[i].impl()->leaf_requires_grad = true;
  }
}

void Weights::AttachAdapters(const LoraConfig& lora) {
  const auto attach = [&](const std::string& name, std::string_view a, std::string_view b) {
    const size_t at = name.find(a);
    if (at == std::string::npos) return;
    const std::string path = name.substr(0, at);
    const std::string second = path + std::string(b);
    LoraAdapter adapter;
    adapter.a = Get(name);
    adapter.b = Get(second);
    const std::string bias = path + ".lora_B.default.bias";
    if (Has(bias)) adapter.b_bias = Get(bias);
    adapter.dropout = lora.lora_dropout;
    adapter.a_id = runtime_.ledger().InternModule(path + ".lora_A.default");
    adapter.b_id = runtime_.ledger().InternModule(path + ".lora_B.default");
    adapters_.emplace(path, std::make_shared<const LoraAdapter>(std::move(adapter)));
  };
  for (const std::string& name : names_) {
    attach(name, ".lora_A.default.weight", ".lora_B.default.weight");
    attach(name, ".lora_embedding_A.default", ".lora_embedding_B.default");
  }
}

const LoraAdapter* Weights::FindAdapter(const std::string& path) const {
  const auto found = adapters_.find(path);
  return found == adapters_.end() ? nullptr : found->second.get();
}

Scope Scope::operator/(std::string_view child) const {
  Scope scope = *this;
  if (!scope.path_.empty()) scope.path_ += '.';
  scope.path_ += child;
  return scope;
}

Tensor Scope::Get(std::string_view name) const { return weights_->Get((*this / name).path_); }

Tensor Scope::Find(std::string_view name) const {
  const std::string path = (*this / name).path_;
  return weights_->Has(path) ? weights_->Get(path) : Tensor();
}

const QuantizedMatrix* Weights::FindQuantized(const std::string& name) const {
  const auto found = quantized_.find(name);
  return found == quantized_.end() ? nullptr : found->second.get();
}

const QuantizedMatrix* Scope::QuantizedWeight() const {
  return weights_->FindQuantized((*this / "weight").path_);
}

namespace {

// lora.Linear, or what PEFT puts in its place where the weight is quantised.
Tensor AdaptedBy(const LoraAdapter& adapter, const QuantizedMatrix* quantized, const Tensor& x,
                 const std::function<Tensor(const Tensor&)>& base) {
  return quantized == nullptr ? WithAdapter(adapter, x, base)
                              : WithAdapterOfQuantized(adapter, x, quantized->is_4bit(), base);
}

}  // namespace

Tensor Linear::Base(const Tensor& x) const {
  return quantized_ == nullptr ? LinearOp(x, weight_, bias_) : quantized_->Multiply(x, bias_);
}

Tensor Linear::Adapted(const Tensor& x) const {
  return AdaptedBy(*adapter_, quantized_, x, [this](const Tensor& input) { return Base(input); });
}

Tensor Conv1d::Base(const Tensor& x) const {
  if (quantized_ != nullptr) return quantized_->Multiply(x, bias_);
  Shape shape = x.shape();
  shape[-1] = weight_.size(1);
  const Tensor rows = Addmm(bias_, View(x, {-1, x.size(-1)}), weight_);
  return View(rows, shape);
}

Tensor Conv1d::Adapted(const Tensor& x) const {
  return AdaptedBy(*adapter_, quantized_, x, [this](const Tensor& input) { return Base(input); });
}

Tensor Embedding::operator()(const Tensor& indices) const {
  const InModule in(weight_.runtime(), id_);
  const Scoped kind(weight_.runtime().kind, Kind::kEmbedding);
  Tensor output = EmbeddingOp(weight_, indices);
  if (adapter_ != nullptr) output = WithEmbeddingAdapter(*adapter_, indices, output);
  // make_inputs_require_grads: output.requires_grad_(True), which makes a leaf of it.
  const bool leaf = wants_grad_ && weight_.runtime().grad_enabled && !output.requires_grad();
  if (leaf) output.impl()->leaf_requires_grad = true;
  return output;
}

Tensor GeluNew(const Tensor& input) {
  // NewGELUActivation of transformers 5.17 activations.py:
  //   0.5 * input * (1.0 + tanh(sqrt(2 / pi) * (input + 0.044715 * pow(input, 3.0))))
  // one step at a time, since Python frees each intermediate as the next is there.
  const Tensor half = MulScalar(input);
  Tensor inner = Pow(input, 3.0);
  inner = MulScalar(inner);
  inner = Add(input, inner);
  inner = MulScalar(inner);
  inner = Tanh(inner);
  inner = AddScalar(inner);
  return Mul(half, inner);
}

Result<Activation> FindActivation(std::string_view name) {
  static constexpr std::pair<std::string_view, Activation> kActivations[] = {
      {"gelu", &Gelu},      {"gelu_new", &GeluNew}, {"gelu_pytorch_tanh", &Gelu},
      {"gelu_fast", &Gelu}, {"relu", &Relu},        {"silu", &Silu},
      {"swish", &Silu},     {"tanh", &Tanh},        {"sigmoid", &Sigmoid},
  };
  std::vector<std::string_view> names;
  for (const auto& [known, function] : kActivations) {
    if (known == name) return function;
    names.push_back(known);
  }
  return Error::Unsupported("activation \"" + std::string(name) + "\" is not modelled" +
                            DidYouMean(name, names));
}

}  // namespace headroom::predict
