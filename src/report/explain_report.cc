// SPDX-License-Identifier: Apache-2.0
#include "report/explain_report.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace headroom {
namespace {

// Remedies that save less than this share of the peak are not worth a change.
constexpr int64_t kSmallestShare = 50;

Bytes At(const ComponentBytes& bytes, Component component) {
  return bytes[static_cast<size_t>(component)];
}

Bytes At(const KindBytes& bytes, Kind kind) { return bytes[static_cast<size_t>(kind)]; }

// What a checkpointed layer does not keep: forward results, less the logits, which no layer makes,
// and the copies of weights that autocast caches.
Bytes Recomputable(const PlanPeak& peak) {
  return At(peak.components, Component::kActivations) -
         At(peak.activation_kinds, Kind::kLogitsLoss) - At(peak.activation_kinds, Kind::kCast) -
         At(peak.activation_kinds, Kind::kAttentionScores);
}

bool Accumulates(const PlanReport& run) {
  return std::any_of(run.phases.begin(), run.phases.end(),
                     [](const PlanPhase& phase) { return phase.mark.name == "substep_end"; });
}

}  // namespace

std::vector<StepRow> StepRows(const PlanReport& run) {
  std::vector<StepRow> rows;
  for (const PlanPhase& phase : run.phases) {
    const PhaseMark& mark = phase.mark;
    if (mark.step < 1) continue;
    if (rows.empty() || rows.back().step != mark.step) rows.emplace_back().step = mark.step;
    StepRow& row = rows.back();
    if (mark.name == "forward_end") row.forward = std::max(row.forward, mark.peak_allocated);
    if (mark.name == "backward_end" || mark.name == "substep_end") {
      row.backward = std::max(row.backward, mark.peak_allocated);
    }
    if (mark.name == "optimizer_end") row.optimizer = mark.peak_allocated;
    // A phase that broke off is the one after the last that ended.
    if (mark.name == "oom" || mark.name == "end") {
      Bytes& open = row.forward == Bytes(0)    ? row.forward
                    : row.backward == Bytes(0) ? row.backward
                                               : row.optimizer;
      if (open == Bytes(0) || mark.name == "oom") open = std::max(open, mark.peak_allocated);
    }
    row.end = mark.allocated;
    row.reserved = mark.reserved;
  }
  return rows;
}

std::string KindWords(Kind kind) {
  if (kind == Kind::kLogitsLoss) return "logits and loss";
  if (kind == Kind::kMlp) return "MLP";
  if (kind == Kind::kLora) return "LoRA";
  std::string words(Name(kind));
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string ReleasableSentence(const FinalMemory& end) {
  return Format(
      "empty_cache() would give back {} now; the rest of the cache lies in segments with live "
      "blocks and goes when they go.",
      FormatMiB(end.releasable));
}

std::string_view FreedBy(Component component) {
  switch (component) {
    case Component::kWeights:
      return "del model and what refers to it, gc.collect()";
    case Component::kGradients:
      return "optimizer.zero_grad(set_to_none=True)";
    case Component::kOptimizer:
      return "del optimizer and trainer, gc.collect()";
    case Component::kActivations:
      return "loss.item(), .detach(): a kept tensor holds its graph";
    case Component::kTemporaries:
    case Component::kInputs:
      return "del the tensors, gc.collect()";
    case Component::kKvCache:
      return "del past_key_values, or what generate() returned it in";
    case Component::kWorkspace:
      return "torch._C._cuda_clearCublasWorkspaces()";
    case Component::kCache:
      return "torch.cuda.empty_cache(), where segments are empty";
    case Component::kContext:
      return "the end of the process";
  }
  return "";
}

std::vector<Remedy> FindRemedies(const ExplainReport& report) {
  const PlanPeak& peak = report.run.peak;
  std::vector<Remedy> remedies;
  const auto offer = [&](Bytes saves, std::string part, std::string change) {
    if (saves * kSmallestShare < report.run.allocated || saves <= Bytes(0)) return;
    remedies.push_back({saves, std::move(part), std::move(change)});
  };
  const auto of_kind = [&](Kind kind) {
    return At(peak.activation_kinds, kind) + At(peak.temporary_kinds, kind);
  };
  offer(of_kind(Kind::kAttentionScores), "attention scores that are written out",
        "attn_implementation=\"sdpa\" computes attention without them");
  offer(of_kind(Kind::kLogitsLoss), "logits and loss",
        report.trains ? "a loss computed in chunks (use_liger_kernel=True) keeps one chunk of them"
                      : "logits_to_keep=1 computes those of the last token only");
  if (report.trains) {
    offer(Recomputable(peak), "activations kept for backward",
          "gradient_checkpointing=True keeps one layer's at a time and computes the others again");
    offer(At(peak.temporary_kinds, Kind::kForeach), "copies that foreach kernels make",
          "optim=\"adamw_torch_fused\" works without them");
    // Two moments in a byte each instead of four: three quarters of what they take.
    const Bytes states = At(peak.components, Component::kOptimizer);
    offer(Bytes(states.count() / 4 * 3), "optimizer state",
          "optim=\"adamw_bnb_8bit\" keeps its moments in a byte each");
    const bool forward = peak.phase == "forward_end" && peak.step > 1;
    if (forward && !Accumulates(report.run)) {
      offer(At(peak.components, Component::kGradients), "gradients of the step before",
            "zero_grad(set_to_none=True) before the forward pass drops them");
    }
  }
  std::stable_sort(remedies.begin(), remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.saves > b.saves; });
  return remedies;
}

}  // namespace headroom
