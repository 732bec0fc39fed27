// SPDX-License-Identifier: Apache-2.0
#include "make_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "allocator_trials.h"
#include "base/format.h"
#include "make_plan.h"
#include "model/parameter_table.h"
#include "observe/holders.h"
#include "report/text.h"

namespace headroom::cli {
namespace {

using observe::kNoEvent;
using observe::Stage;

// The mark that would close a phase, for one that the recording did not see end.
std::string_view MarkOf(Stage stage) {
  switch (stage) {
    case Stage::kForward:
      return "forward_end";
    case Stage::kBackward:
      return "backward_end";
    case Stage::kOptimizer:
      return "optimizer_end";
    default:
      return "train_begin";
  }
}

std::vector<observe::NamedSize> SizesOf(const ParameterTable& table, DType weights) {
  std::vector<observe::NamedSize> sizes;
  for (const ParameterSpec& entry : table.entries()) {
    const int64_t element = ElementSize(entry.TypeIn(weights));
    sizes.push_back({entry.name, Bytes(entry.shape.NumElements() * element), entry.is_buffer});
  }
  return sizes;
}

void SortLargestFirst(std::vector<HolderRow>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const HolderRow& a, const HolderRow& b) {
    return std::tuple(b.bytes, a.place) < std::tuple(a.bytes, b.place);
  });
}

// Different stacks may read the same: they are one row.
class RowFolder {
 public:
  void Add(const HolderRow& row) {
    HolderRow& sum = rows_[{row.place, row.component, row.kind}];
    const Bytes bytes = sum.bytes + row.bytes;
    const int64_t blocks = sum.blocks + row.blocks;
    sum = row;
    sum.bytes = bytes;
    sum.blocks = blocks;
  }
  std::vector<HolderRow> Rows() const {
    std::vector<HolderRow> rows;
    for (const auto& [key, row] : rows_) rows.push_back(row);
    SortLargestFirst(rows);
    return rows;
  }

 private:
  std::map<std::tuple<std::string, Component, Kind>, HolderRow> rows_;
};

std::string PlaceOf(const StudiedSnapshot& study, observe::StackId stack) {
  const observe::StackClass& c = study.classes.stacks[stack];
  // The backward pass has no Python frames: its node says where it is.
  if (c.stage == Stage::kBackward && !c.recompute && !c.module.empty()) {
    return c.op.empty() ? c.module : Format("{} ({})", c.module, c.op);
  }
  std::string place = observe::DescribeStack(study.snapshot, stack);
  return place == "no stack" ? "(no stack recorded)" : place;
}

std::vector<HolderRow> HolderRows(const StudiedSnapshot& study, uint32_t event) {
  RowFolder folder;
  for (const observe::Holder& holder : observe::HoldersAt(study.replay, study.classes, event)) {
    folder.Add(
        {PlaceOf(study, holder.stack), holder.component, holder.kind, holder.bytes, holder.blocks});
  }
  return folder.Rows();
}

// "modeling_gpt2.py:240 > pytorch_utils.py" of a longer chain of calls: what a table has room for.
std::string InnerPlaces(const std::string& module) {
  constexpr std::string_view kArrow = " > ";
  const size_t last = module.rfind(kArrow);
  if (last == std::string::npos || last == 0) return module;
  const size_t before = module.rfind(kArrow, last - 1);
  return before == std::string::npos ? module : module.substr(before + kArrow.size());
}

// What is alive at the peak by the place in the model that made it, or the parameter it is.
std::vector<HolderRow> ModuleRows(const Ledger& ledger) {
  if (ledger.events().empty()) return {};
  RowFolder folder;
  for (const LiveBlock& block : ledger.LiveAt(ledger.peak_event())) {
    const MemoryEvent& event = ledger.events()[block.event];
    const std::string& module = ledger.ModulePath(event.module);
    if (module.empty()) continue;
    folder.Add({InnerPlaces(module), event.component, event.kind, block.bytes, 1});
  }
  return folder.Rows();
}

std::vector<GrowthRow> GrowthRows(const StudiedSnapshot& study) {
  std::vector<GrowthRow> rows;
  for (const observe::Growth& growth : study.growth) {
    rows.push_back({PlaceOf(study, growth.stack), growth.component, growth.per_step(),
                    static_cast<int64_t>(growth.after_step.size()) - 1});
  }
  return rows;
}

FailureReport FailureOf(const StudiedSnapshot& study, const observe::OomEvent& oom) {
  FailureReport failure;
  failure.requested = oom.requested;
  failure.device_free = oom.device_free;
  const observe::ObservedTotals totals = observe::TotalsAt(study.replay, study.classes, oom.event);
  failure.allocated = totals.allocated;
  failure.reserved = observe::ReservedAfter(study.replay, oom.event);
  const observe::StackClass& stack = study.classes.stacks[oom.stack];
  const observe::PhaseSpan* span = study.classes.phases.At(oom.event);
  failure.step = span == nullptr ? 0 : span->step;
  const Stage stage = stack.stage != Stage::kUnknown && stack.stage != Stage::kOther ? stack.stage
                      : span != nullptr                                              ? span->stage
                                                                                     : stack.stage;
  failure.phase = stage == Stage::kUnknown || stage == Stage::kOther ? "an unknown phase"
                                                                     : observe::Name(stage);
  failure.place = PlaceOf(study, oom.stack);
  failure.component = stage == Stage::kForward ? Component::kActivations : Component::kTemporaries;
  if (stage == Stage::kLoad) failure.component = Component::kWeights;
  failure.kind = stack.kind;
  failure.holders = HolderRows(study, oom.event);
  for (const HolderRow& row : failure.holders) {
    if (failure.kind != Kind::kOther && row.kind == failure.kind) failure.of_its_kind += row.bytes;
  }
  return failure;
}

FinalMemory FinalOf(const StudiedSnapshot& study) {
  const observe::FinalState& state = study.replay.final_state;
  FinalMemory end;
  const bool trace_only = study.snapshot.segments.empty();
  end.allocated = study.replay.end_allocated;
  end.reserved = trace_only ? study.replay.end_reserved : state.reserved;
  end.requested = trace_only ? end.allocated : state.requested + state.pending_free;
  end.pending_free = state.pending_free;
  end.largest_free = state.largest_free;
  end.releasable = state.releasable;
  // The last event of the trace; with none, the time before it.
  const uint32_t last = study.replay.events.count == 0 ? kNoEvent : study.replay.events.end() - 1;
  end.components = observe::TotalsAt(study.replay, study.classes, last).handed_out;
  end.components[static_cast<size_t>(Component::kCache)] =
      std::max(Bytes(0), end.reserved - end.allocated);
  end.holders = HolderRows(study, last);
  return end;
}

// A run that failed in its first forward pass was about to train when it computed a loss.
bool Trains(const StudiedSnapshot& study) {
  if (study.classes.phases.trains) return true;
  return std::ranges::any_of(study.replay.ooms, [&](const observe::OomEvent& oom) {
    return study.classes.stacks[oom.stack].Has(observe::FrameFact::kLoss);
  });
}

void AddRequested(const StudiedSnapshot& study, ExplainReport& report) {
  const observe::Replay& replay = study.replay;
  const auto at = [&](uint32_t event) { return observe::TotalsAt(replay, study.classes, event); };
  const observe::ObservedTotals peak = at(replay.peak_event);
  report.unexplained = peak.unexplained;
  report.requested_at_peak = peak.requested;
  if (replay.events.count == 0) {
    report.requested_at_end = peak.requested;
    return;
  }
  report.requested_at_end = at(replay.events.end() - 1).requested;
  const std::vector<observe::PhaseCut>& cuts = study.classes.phases.cuts;
  const auto backward = std::find_if(cuts.rbegin(), cuts.rend(), [](const observe::PhaseCut& cut) {
    return cut.name == "backward_end";
  });
  if (backward == cuts.rend() || backward->event == replay.events.first) return;
  report.requested_after_backward = at(backward->event - 1).requested;
}

std::string Counted(int64_t count, std::string_view what) {
  return Format("{} {}{}", Thousands(count), what, count == 1 ? "" : "s");
}

std::vector<std::string> Facts(const StudiedSnapshot& study) {
  const observe::Snapshot& snapshot = study.snapshot;
  std::vector<std::string> facts;
  if (!study.model.empty()) facts.push_back(study.model);
  if (study.classes.phases.stated) {
    facts.emplace_back("written by headroom plan");
  } else if (!snapshot.era.empty()) {
    facts.push_back("written by " + snapshot.era);
  }
  facts.push_back(Counted(study.replay.events.count, "event"));
  if (study.classes.phases.steps > 0) {
    facts.push_back(Counted(study.classes.phases.steps, "optimizer step"));
  }
  const std::vector<int> devices = observe::DevicesIn(snapshot);
  facts.push_back(devices.size() > 1 ? Format("device {} of {} (--device shows another)",
                                              study.replay.device, devices.size())
                                     : Format("device {}", study.replay.device));
  if (snapshot.settings && !snapshot.settings->conf.empty()) {
    facts.push_back(snapshot.settings->conf);
  }
  return facts;
}

// A phase that broke off has no mark of its own: its name is that of the mark it would have had.
void NamePeakPhase(const StudiedSnapshot& study, PlanReport& run) {
  const bool named = run.peak.phase != "oom" && run.peak.phase != "end" && !run.peak.phase.empty();
  if (named) return;
  const observe::PhaseSpan* span = study.replay.peak_event == kNoEvent
                                       ? nullptr
                                       : study.classes.phases.At(study.replay.peak_event);
  const bool within = span != nullptr && study.replay.peak_event < span->end;
  run.peak.phase = span == nullptr ? "train_begin" : within ? MarkOf(span->stage) : "step_begin";
  run.peak.step = span == nullptr ? 0 : span->step;
}

}  // namespace

Result<StudiedSnapshot> StudySnapshot(observe::Snapshot snapshot, const std::string& origin,
                                      std::optional<int> device, const PlanOptions* model) {
  const std::vector<int> devices = observe::DevicesIn(snapshot);
  if (device && std::ranges::find(devices, *device) == devices.end()) {
    return Error::BadInput(
        Format("--device {}: the snapshot has device {}", *device, fmt::join(devices, ", ")));
  }
  std::vector<observe::NamedSize> sizes;
  std::string name;
  int64_t parameters = 0;
  if (model != nullptr) {
    HEADROOM_ASSIGN_OR_RETURN(const ResolvedModel resolved, ResolveModel(*model));
    HEADROOM_ASSIGN_OR_RETURN(const ParameterTable table,
                              ParameterTable::Build(resolved.config, resolved.task));
    sizes = SizesOf(table, resolved.weights_dtype);
    name = resolved.name;
    parameters = table.parameter_count();
  }
  const int chosen = device.value_or(observe::BusiestDevice(snapshot));
  Result<observe::Replay> played = observe::ReplayDevice(snapshot, chosen);
  if (!played.ok()) return played.error().In(origin);
  observe::Replay replay = std::move(played).value();
  observe::Classification classes = observe::Classify(snapshot, replay, sizes);
  // All that is asked of events from here on stands in the replay.
  snapshot.events = observe::EventTable();
  // Before the ledger: what this takes is free again by then.
  std::vector<observe::Growth> growth = observe::FindGrowth(replay, classes);
  Ledger ledger = observe::BuildLedger(snapshot, replay, classes);
  return StudiedSnapshot{std::move(snapshot), std::move(replay), std::move(classes),
                         std::move(growth),   std::move(ledger), std::move(name),
                         parameters};
}

PlanReport BuildRunReport(const StudiedSnapshot& study) {
  PlanHeader header;
  header.model = study.model;
  header.parameters = study.parameters;
  PlanReport run = BuildPlanReport(study.ledger, std::move(header));
  NamePeakPhase(study, run);
  return run;
}

ExplainReport BuildExplainReport(const StudiedSnapshot& study, std::string name) {
  const observe::Replay& replay = study.replay;
  ExplainReport report;
  report.name = std::move(name);
  report.facts = Facts(study);
  report.has_history = replay.events.count > 0;
  report.trains = Trains(study);
  report.device = replay.device;
  report.run = BuildRunReport(study);
  AddRequested(study, report);
  report.holders = HolderRows(study, replay.peak_event);
  report.modules = ModuleRows(study.ledger);
  report.steps = StepRows(report.run);
  report.growth = GrowthRows(study);
  if (!replay.ooms.empty()) report.failure = FailureOf(study, replay.ooms.back());
  AllocatorTrials trials = PlayThroughAllocators(study.snapshot, replay, study.classes);
  report.trials = std::move(trials.trials);
  report.final_memory = FinalOf(study);
  report.notes = study.classes.notes;
  if (replay.untold > Bytes(0)) {
    report.notes.push_back(
        Format("{} were reserved of which the file does not tell: blocks lay there",
               FormatMiB(replay.untold)));
  }
  if (!trials.note.empty()) report.notes.push_back(std::move(trials.note));
  if (replay.contradictions > 0) {
    report.notes.push_back(Format("{} events contradict the rest of the recording",
                                  Thousands(static_cast<int64_t>(replay.contradictions))));
  }
  report.notes.insert(report.notes.end(), study.snapshot.warnings.begin(),
                      study.snapshot.warnings.end());
  report.notes.emplace_back(
      "a recording does not see what lies outside PyTorch's allocator: CUDA context, libraries, "
      "NCCL");
  return report;
}

}  // namespace headroom::cli
