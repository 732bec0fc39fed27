// SPDX-License-Identifier: Apache-2.0
#include "report/module_tree.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string_view>

#include "base/format.h"

namespace headroom {
namespace {

// Parts of a path beyond this depth stay in one name; no model nests half as deep.
constexpr int kDeepest = 32;

void AddTo(ComponentBytes& sum, const ComponentBytes& bytes) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += bytes[i];
}

ModuleNode& Child(ModuleNode& node, std::string_view name) {
  for (ModuleNode& child : node.children) {
    if (child.name == name) return child;
  }
  node.children.emplace_back().name = name;
  return node.children.back();
}

std::optional<int64_t> Number(std::string_view name) {
  int64_t number = 0;
  const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (failure != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

Bytes Sum(const ComponentBytes& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), Bytes(0));
}

// Whether two layers hold the same for a reader: the allocator makes blocks of one size a little
// larger here and there, which must not keep equal layers apart.
bool Alike(const ModuleNode& a, const ModuleNode& b) {
  constexpr int64_t kTolerance = 50;  // a fiftieth of the layer
  const Bytes allowed(std::max(Sum(a.total), Sum(b.total)).count() / kTolerance);
  for (size_t i = 0; i < a.total.size(); ++i) {
    const Bytes difference = std::max(a.total[i], b.total[i]) - std::min(a.total[i], b.total[i]);
    if (difference > allowed) return false;
  }
  return a.children.empty() == b.children.empty();
}

// Adds `other` to `node`, descendants of the same name to each other.
void Merge(ModuleNode& node, const ModuleNode& other) {
  AddTo(node.own, other.own);
  AddTo(node.total, other.total);
  for (const ModuleNode& child : other.children) {
    ModuleNode& same = Child(node, child.name);
    same.count = child.count;
    Merge(same, child);
  }
}

// Runs of children that are alike and numbered consecutively become one child each: "[0-22]".
void FoldNumbered(ModuleNode& node) {
  std::vector<ModuleNode> folded;
  for (size_t first = 0; first < node.children.size();) {
    const std::optional<int64_t> start = Number(node.children[first].name);
    ModuleNode run = node.children[first];
    size_t next = first + 1;
    while (start && next < node.children.size() &&
           Number(node.children[next].name) == *start + static_cast<int64_t>(next - first) &&
           Alike(node.children[first], node.children[next])) {
      Merge(run, node.children[next]);
      ++next;
    }
    if (next - first > 1) {
      run.count = static_cast<int>(next - first);
      run.name = Format("[{}-{}]", *start, *start + static_cast<int64_t>(next - first) - 1);
    }
    folded.push_back(std::move(run));
    first = next;
  }
  node.children = std::move(folded);
}

// A module that holds nothing itself and has one child says nothing that the child's path does not.
void JoinOnlyChildren(ModuleNode& node) {
  for (ModuleNode& child : node.children) JoinOnlyChildren(child);
  if (node.children.size() != 1 || node.own != ComponentBytes{} || node.name.empty()) return;
  ModuleNode child = std::move(node.children.front());
  child.name = node.name + "." + child.name;
  child.count *= node.count;
  node = std::move(child);
}

void SumAndFold(ModuleNode& node) {
  node.total = node.own;
  for (ModuleNode& child : node.children) {
    SumAndFold(child);
    AddTo(node.total, child.total);
  }
  const auto number = [](const ModuleNode& child) { return Number(child.name); };
  if (std::ranges::all_of(node.children,
                          [&](const auto& child) { return number(child).has_value(); })) {
    std::ranges::stable_sort(node.children, {}, number);
  }
  FoldNumbered(node);
}

}  // namespace

ModuleNode BuildModuleTree(std::span<const ModuleBytes> modules) {
  ModuleNode root;
  for (const ModuleBytes& module : modules) {
    ModuleNode* node = &root;
    std::string_view path = module.path;
    for (int depth = 1; !path.empty(); ++depth) {
      const size_t dot = depth < kDeepest ? path.find('.') : std::string_view::npos;
      node = &Child(*node, path.substr(0, dot));
      path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
    }
    AddTo(node->own, module.bytes);
  }
  SumAndFold(root);
  JoinOnlyChildren(root);
  return root;
}

}  // namespace headroom
