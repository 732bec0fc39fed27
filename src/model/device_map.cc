// SPDX-License-Identifier: Apache-2.0
//
// transformers 5.17.0, integrations/accelerate.py: get_balanced_memory, infer_auto_device_map,
// get_max_layer_size. Tied heads have no bytes of their own there and follow the embedding.
#include "model/device_map.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace headroom {
namespace {

struct Module {
  std::string path;
  std::string name;
  int64_t bytes = 0;
  int64_t own_bytes = 0;  // of its own parameters and buffers
  bool is_tensor = false;
  std::vector<std::unique_ptr<Module>> children;  // its own tensors first

  bool IsLayer() const { return !path.empty() && LayerOf(path) == path; }
  bool CanSplit() const { return !is_tensor && !IsLayer() && !HasOnlyTensors(); }
  bool HasOnlyTensors() const {
    return std::all_of(children.begin(), children.end(),
                       [](const auto& child) { return child->is_tensor; });
  }
  Module& Child(std::string_view child) {
    for (const auto& known : children) {
      if (!known->is_tensor && known->name == child) return *known;
    }
    auto made = std::make_unique<Module>();
    made->name = std::string(child);
    made->path = path.empty() ? made->name : path + "." + made->name;
    children.push_back(std::move(made));
    return *children.back();
  }
};

void AddTensor(Module& root, const ParameterSpec& spec, int64_t bytes) {
  Module* module = &root;
  std::string_view rest = spec.name;
  module->bytes += bytes;
  for (size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    module = &module->Child(rest.substr(0, dot));
    module->bytes += bytes;
    rest.remove_prefix(dot + 1);
  }
  module->own_bytes += bytes;
  auto tensor = std::make_unique<Module>();
  tensor->name = std::string(rest);
  tensor->path = spec.name;
  tensor->bytes = bytes;
  tensor->is_tensor = true;
  module->children.push_back(std::move(tensor));
}

Module BuildTree(const ParameterTable& table, DType dtype) {
  Module root;
  for (const ParameterSpec& spec : table.entries()) {
    AddTensor(root, spec, spec.shape.NumElements() * ElementSize(spec.dtype.value_or(dtype)));
  }
  return root;
}

// A place that list(named_parameters) + list(named_children) of a module takes: tensors first.
std::vector<const Module*> Parts(const Module& module) {
  std::vector<const Module*> parts;
  for (const auto& child : module.children) parts.push_back(child.get());
  std::stable_partition(parts.begin(), parts.end(),
                        [](const Module* part) { return part->is_tensor; });
  return parts;
}

// get_max_layer_size: of what is not split any further.
int64_t LargestLayer(const Module& module) {
  if (module.is_tensor) return 0;
  if (!module.CanSplit()) return module.bytes;
  int64_t largest = 0;
  for (const auto& child : module.children) largest = std::max(largest, LargestLayer(*child));
  return largest;
}

struct LeafSum {
  int64_t bytes = 0;
  int64_t count = 0;
};

// Modules with tensors of their own, for the mean of get_balanced_memory.
void SumLeaves(const Module& module, LeafSum& sum) {
  if (module.own_bytes > 0 && !module.path.empty()) {
    sum.bytes += module.own_bytes;
    ++sum.count;
  }
  for (const auto& child : module.children) {
    if (!child->is_tensor) SumLeaves(*child, sum);
  }
}

int64_t LargestUnsplit(const Module& module) {
  if (module.is_tensor) return 0;
  if (module.IsLayer()) return module.bytes;
  int64_t largest = 0;
  for (const auto& child : module.children) largest = std::max(largest, LargestUnsplit(*child));
  return largest;
}

constexpr double kBufferFactor = 1.25;     // get_balanced_memory
constexpr double kShareOfOneDevice = 0.9;  // "90% is a good compromise"

// get_balanced_memory.
std::vector<int64_t> Balance(const Module& root, std::vector<int64_t> room) {
  if (room.size() == 1) {
    room[0] = static_cast<int64_t>(kShareOfOneDevice * static_cast<double>(room[0]));
    return room;
  }
  LeafSum leaves;
  SumLeaves(root, leaves);
  const int64_t mean = leaves.bytes / std::max<int64_t>(leaves.count, 1);
  const int64_t buffer = std::max(LargestUnsplit(root), mean);
  const int64_t share = root.bytes / static_cast<int64_t>(room.size()) +
                        static_cast<int64_t>(kBufferFactor * static_cast<double>(buffer));
  for (size_t card = 0; card + 1 < room.size(); ++card) room[card] = std::min(room[card], share);
  return room;
}

}  // namespace

std::string_view LayerOf(std::string_view name) {
  const auto is_number = [](std::string_view word) {
    return !word.empty() && std::all_of(word.begin(), word.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  for (size_t begin = 0; begin < name.size();) {
    const size_t dot = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, dot - begin))) return name.substr(0, dot);
    begin = dot + 1;
  }
  return {};
}

Bytes DeviceMap::Sum(const std::vector<PlacedModule>& modules) {
  Bytes sum;
  for (const PlacedModule& module : modules) sum += module.bytes;
  return sum;
}

DeviceMap InferDeviceMap(const ParameterTable& table, DType dtype, const std::vector<Bytes>& free,
                         DeviceMapKind kind) {
  const Module root = BuildTree(table, dtype);
  std::vector<int64_t> room;
  for (const Bytes bytes : free) room.push_back(std::max<int64_t>(bytes.count(), 0));
  if (kind == DeviceMapKind::kAuto) room = Balance(root, std::move(room));
  DeviceMap map;
  map.cards.resize(room.size());
  std::deque<const Module*> todo;
  for (const Module* part : Parts(root)) todo.push_back(part);
  size_t card = 0;
  int64_t used = 0;
  while (!todo.empty()) {
    const Module* module = todo.front();
    todo.pop_front();
    if (card == room.size()) {
      map.offloaded.push_back({module->path, Bytes(module->bytes)});
      continue;
    }
    // The first card keeps room for the largest layer to come, which the host may have to send
    // back.
    int64_t limit = room[card];
    if (card == 0) {
      int64_t largest = 0;
      for (const Module* later : todo) largest = std::max(largest, LargestLayer(*later));
      limit -= largest;
    }
    if (used + module->bytes <= limit) {
      used += module->bytes;
      map.cards[card].push_back({module->path, Bytes(module->bytes)});
      continue;
    }
    if (module->CanSplit()) {
      const std::vector<const Module*> parts = Parts(*module);
      todo.insert(todo.begin(), parts.begin(), parts.end());
      continue;
    }
    todo.push_front(module);
    ++card;
    used = 0;
  }
  return map;
}

}  // namespace headroom
