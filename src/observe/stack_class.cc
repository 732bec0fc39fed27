// SPDX-License-Identifier: Apache-2.0
#include "observe/stack_class.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/format.h"

namespace headroom::observe {
namespace {

// The deepest chain of calls worth naming; deeper ones keep their innermost part.
constexpr size_t kLongestChain = 8;

struct FrameInfo {
  FrameFacts facts = 0;
  std::string_view op;
  std::string_view node;
  bool apply = false;  // Module._apply
};

// Ops that only make room: the op that asked for it says more.
bool IsPlainAllocation(std::string_view op) {
  constexpr std::string_view kPlain[] = {
      "empty_strided", "empty_like", "empty_memory_format", "empty", "resize_",   "zeros",
      "zeros_like",    "new_empty",  "new_empty_strided",   "full",  "ones_like", "clone",
      "contiguous"};
  return std::find(std::begin(kPlain), std::end(kPlain), op) != std::end(kPlain);
}

// What a stack was read into, before kinds are chosen.
struct Reading {
  std::vector<std::string_view> ops;  // innermost first, neighbours different
  std::vector<std::string> sites;     // places in model files, outermost first
  std::string_view node;              // of autograd
  std::string_view leaf;              // file of the innermost torch.nn module
};

struct NamedKind {
  std::string_view name;
  Kind kind;
};

// Kinds by the node of autograd that runs; the first whose name starts so.
constexpr NamedKind kNodeKinds[] = {
    {"LogSoftmax", Kind::kLogitsLoss},
    {"NllLoss", Kind::kLogitsLoss},
    {"CrossEntropy", Kind::kLogitsLoss},
    {"Softmax", Kind::kAttentionScores},
    {"SafeSoftmax", Kind::kAttentionScores},
    {"ScaledDotProduct", Kind::kAttention},
    {"NativeLayerNorm", Kind::kNorm},
    {"FusedRmsNorm", Kind::kNorm},
    {"NativeDropout", Kind::kDropout},
    {"Gelu", Kind::kMlp},
    {"Silu", Kind::kMlp},
    {"Embedding", Kind::kEmbedding},
    {"ToCopy", Kind::kCast},
};

// Kinds by op, where the frames say nothing.
constexpr NamedKind kOpKinds[] = {
    {"_log_softmax", Kind::kLogitsLoss},
    {"nll_loss_forward", Kind::kLogitsLoss},
    {"native_layer_norm", Kind::kNorm},
    {"rsqrt", Kind::kNorm},
    {"_fused_rms_norm", Kind::kNorm},
    {"cos", Kind::kPosition},
    {"sin", Kind::kPosition},
    {"arange", Kind::kPosition},
    {"topk", Kind::kRouting},
    {"one_hot", Kind::kRouting},
    {"native_dropout", Kind::kDropout},
    {"gelu", Kind::kMlp},
    {"silu", Kind::kMlp},
    {"embedding", Kind::kEmbedding},
};

bool HasOp(const Reading& reading, std::string_view op) {
  return std::find(reading.ops.begin(), reading.ops.end(), op) != reading.ops.end();
}

std::string Chain(const std::vector<std::string>& sites, size_t count) {
  std::string chain;
  for (size_t i = 0; i < count; ++i) chain += (i == 0 ? "" : " > ") + sites[i];
  return chain;
}

// The first decisive frame, innermost first.
std::optional<Stage> StageOf(FrameFacts facts) {
  if (Has(facts, FrameFact::kEngine)) return Stage::kBackward;
  if (Has(facts, FrameFact::kZeroGrad)) return Stage::kZeroGrad;
  if (Has(facts, FrameFact::kClip)) return Stage::kClip;
  if (Has(facts, FrameFact::kOptimizerStep)) return Stage::kOptimizer;
  if (Has(facts, FrameFact::kLoad)) return Stage::kLoad;
  if (Has(facts, FrameFact::kData)) return Stage::kData;
  if (Has(facts, FrameFact::kForward)) return Stage::kForward;
  return std::nullopt;
}

class Classifier {
 public:
  explicit Classifier(const Snapshot& snapshot) : snapshot_(snapshot) {
    frames_.reserve(snapshot.frames.size());
    for (size_t i = 0; i < snapshot.frames.size(); ++i) {
      const Frame& frame = snapshot.frames[FrameId(i)];
      const std::string_view name = snapshot.strings.Get(frame.name);
      frames_.push_back({FactsOf(name, snapshot.strings.Get(frame.filename)), OpOf(name),
                         BackwardNodeOf(name), name == "_apply"});
    }
  }

  std::vector<StackClass> Run() {
    std::vector<StackClass> classes(snapshot_.stacks.size());
    std::vector<Reading> readings(classes.size());
    for (size_t i = 0; i < classes.size(); ++i) {
      readings[i] = Read(StackId(i), &classes[i]);
      NotePart(classes[i], readings[i]);
    }
    for (size_t i = 0; i < classes.size(); ++i) {
      if (StatedClass(StackId(i), &classes[i])) continue;
      classes[i].kind = KindOf(classes[i], readings[i]);
      classes[i].module = ModuleOf(classes[i], readings[i]);
    }
    return classes;
  }

 private:
  // Parts of a model that a place in its code was seen to belong to.
  enum Part : uint8_t { kAttentionPart = 1, kMlpPart = 2 };

  Reading Read(StackId stack, StackClass* out) {
    Reading reading;
    std::optional<Stage> stage;
    const std::span<const FrameId> frames = snapshot_.stacks[stack];
    for (size_t i = 0; i < frames.size(); ++i) {
      const FrameInfo& info = frames_[static_cast<uint32_t>(frames[i])];
      out->facts |= info.facts;
      if (!info.op.empty() && (reading.ops.empty() || reading.ops.back() != info.op)) {
        reading.ops.push_back(info.op);
      }
      if (reading.node.empty()) reading.node = info.node;
      if (!stage) {
        stage = StageOf(info.facts);
      } else if (*stage == Stage::kForward && Has(info.facts, FrameFact::kEngine)) {
        // A forward inside the engine: a checkpoint runs it again.
        out->recompute = true;
      }
      if (info.apply && out->apply_line == 0) {
        out->apply_line = snapshot_.frames[frames[i]].line;
      }
      ReadPlace(frames[i], info, &reading);
    }
    out->stage = frames.empty() ? Stage::kUnknown : stage.value_or(Stage::kOther);
    if (out->recompute) out->stage = Stage::kBackward;
    // Read innermost first; people read calls outermost first.
    std::reverse(reading.sites.begin(), reading.sites.end());
    out->op = OpName(reading);
    return reading;
  }

  void ReadPlace(FrameId id, const FrameInfo& info, Reading* reading) {
    if (!Has(info.facts, FrameFact::kPython) || Has(info.facts, FrameFact::kPlumbing)) return;
    const Frame& frame = snapshot_.frames[id];
    const std::string_view filename = snapshot_.strings.Get(frame.filename);
    const bool is_forward = snapshot_.strings.Get(frame.name) == "forward";
    if (Has(info.facts, FrameFact::kModeling)) {
      if (reading->sites.size() < kLongestChain) {
        reading->sites.push_back(Format("{}:{}", BaseName(filename), frame.line));
      }
    } else if (is_forward && reading->leaf.empty() && reading->sites.empty()) {
      reading->leaf = BaseName(filename);
    }
  }

  static std::string OpName(const Reading& reading) {
    if (reading.ops.empty()) return "";
    const auto telling = std::find_if(reading.ops.begin(), reading.ops.end(),
                                      [](std::string_view op) { return !IsPlainAllocation(op); });
    return Format("aten::{}", telling == reading.ops.end() ? reading.ops.back() : *telling);
  }

  // The two "frames" of `plan --export-snapshot`: op, in the file named as its kind, and module, in
  // that named as its component. A block without an op has its component's name there.
  bool StatedClass(StackId stack, StackClass* out) const {
    const std::span<const FrameId> frames = snapshot_.stacks[stack];
    if (frames.size() != 2) return false;
    const Frame& op = snapshot_.frames[frames[0]];
    const Frame& module = snapshot_.frames[frames[1]];
    const std::string_view component = snapshot_.strings.Get(module.filename);
    const std::optional<Kind> kind = ParseKind(snapshot_.strings.Get(op.filename));
    const std::optional<Component> stated = ParseComponent(component);
    if (!kind || !stated || static_cast<int>(*stated) >= kAllocatedComponentCount) return false;
    out->stated = stated;
    out->kind = *kind;
    const std::string_view name = snapshot_.strings.Get(op.name);
    out->op = name == component ? "" : name;
    out->module = snapshot_.strings.Get(module.name);
    return true;
  }

  // Attention functions and activation functions mark the module that calls them, and its parents,
  // as attention or MLP; the projections beside them learn from it.
  void NotePart(const StackClass& c, const Reading& reading) {
    if (c.stage != Stage::kForward && !c.recompute) return;
    uint8_t part = 0;
    if (c.Has(FrameFact::kAttention)) {
      part = kAttentionPart;
    } else if (c.Has(FrameFact::kActivationFunction)) {
      part = kMlpPart;
    }
    if (part == 0) return;
    for (size_t count = 1; count < reading.sites.size(); ++count) {
      parts_[Chain(reading.sites, count)] |= part;
    }
  }

  // The part of the nearest enclosing module that belongs to one part only.
  Kind PartOf(const Reading& reading) const {
    for (size_t count = reading.sites.size(); count-- > 1;) {
      const auto found = parts_.find(Chain(reading.sites, count));
      if (found == parts_.end()) continue;
      if (found->second == kAttentionPart) return Kind::kAttention;
      if (found->second == kMlpPart) return Kind::kMlp;
      return Kind::kOther;
    }
    return Kind::kOther;
  }

  Kind KindOf(const StackClass& c, const Reading& reading) const {
    switch (c.stage) {
      case Stage::kForward:
        return ForwardKind(c, reading);
      case Stage::kBackward:
        return c.recompute ? ForwardKind(c, reading) : BackwardKind(reading);
      case Stage::kClip:
      case Stage::kOptimizer:
        return Kind::kForeach;
      default:
        return Kind::kOther;
    }
  }

  static Kind BackwardKind(const Reading& reading) {
    for (const auto& [name, kind] : kNodeKinds) {
      if (reading.node.starts_with(name)) return kind;
    }
    return Kind::kOther;
  }

  Kind ForwardKind(const StackClass& c, const Reading& reading) const {
    if (c.Has(FrameFact::kMask)) return Kind::kPosition;
    if (c.Has(FrameFact::kLoss)) return Kind::kLogitsLoss;
    const bool copies = HasOp(reading, "_to_copy");
    // Functions of the MLP that autocast runs in 32 bits are given copies of their input: no cast
    // to 16 bits, a part of the MLP.
    if (c.Has(FrameFact::kAutocast) && copies && !c.Has(FrameFact::kActivationFunction)) {
      return Kind::kCast;
    }
    if (c.Has(FrameFact::kLora)) return Kind::kLora;
    if (c.Has(FrameFact::kAttention)) {
      const bool scores = HasOp(reading, "_softmax") || HasOp(reading, "softmax_int");
      return scores ? Kind::kAttentionScores : Kind::kAttention;
    }
    if (c.Has(FrameFact::kRotary)) return Kind::kAttention;
    if (c.Has(FrameFact::kRouting)) return Kind::kRouting;
    if (c.Has(FrameFact::kDropout)) return Kind::kDropout;
    if (c.Has(FrameFact::kNorm)) return Kind::kNorm;
    if (c.Has(FrameFact::kEmbedding)) return Kind::kEmbedding;
    if (c.Has(FrameFact::kActivationFunction) || c.Has(FrameFact::kMlp)) return Kind::kMlp;
    for (const auto& [op, kind] : kOpKinds) {
      if (HasOp(reading, op)) return kind;
    }
    // A projection that the whole model's forward calls itself is the head: logits.
    if (c.Has(FrameFact::kLinear) && reading.sites.size() == 1) return Kind::kLogitsLoss;
    if (const Kind part = PartOf(reading); part != Kind::kOther) return part;
    if (!reading.ops.empty() && reading.ops.front() == "add_Tensor") return Kind::kResidual;
    return Kind::kOther;
  }

  std::string ModuleOf(const StackClass& c, const Reading& reading) const {
    if (c.stage == Stage::kBackward && !c.recompute) return std::string(reading.node);
    std::string module = Chain(reading.sites, reading.sites.size());
    if (reading.leaf.empty()) return module;
    return Format("{}{}{}", module, module.empty() ? "" : " > ", reading.leaf);
  }

  const Snapshot& snapshot_;
  std::vector<FrameInfo> frames_;
  std::unordered_map<std::string, uint8_t> parts_;
};

}  // namespace

std::string_view Name(Stage stage) {
  constexpr std::string_view kNames[] = {"unknown",   "load",      "data",
                                         "forward",   "backward",  "clipping",
                                         "optimizer", "zero_grad", "other"};
  return kNames[static_cast<size_t>(stage)];
}

StackClasses::StackClasses(const Snapshot& snapshot) : classes_(Classifier(snapshot).Run()) {
  std::vector<bool> used(classes_.size(), false);
  // Not distinct(): it holds events that were changed since, whose stacks may be gone.
  for (size_t i = 0; i < snapshot.events.count(); ++i) {
    used[static_cast<uint32_t>(snapshot.events[i].stack)] = true;
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    any_engine_ |= used[i] && classes_[i].Has(FrameFact::kEngine);
    any_frames_ |= used[i] && classes_[i].stage != Stage::kUnknown;
  }
}

}  // namespace headroom::observe
