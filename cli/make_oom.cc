// SPDX-License-Identifier: Apache-2.0
#include "make_oom.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/format.h"
#include "default_task.h"
#include "make_fit.h"
#include "make_plan.h"
#include "observe/frame_facts.h"
#include "observe/oom_message.h"
#include "report/text.h"

namespace headroom::cli {
namespace {

using observe::OomCause;
using observe::OomMessage;

std::string CauseSentence(OomCause cause, const OomMessage& m) {
  const auto size = [](const std::optional<Bytes>& bytes) {
    return FormatBytes(bytes.value_or(Bytes(0)));
  };
  switch (cause) {
    case OomCause::kRequestBeyondDevice:
      return Format("The request alone is more than the {} that there are.",
                    size(m.allowed ? m.allowed : m.capacity));
    case OomCause::kCappedByFraction:
      return Format(
          "The device had {} free: it was the cap of {} on this process "
          "(set_per_process_memory_fraction) that refused it.",
          size(m.free), size(m.allowed));
    case OomCause::kOtherProcesses: {
      Bytes named;
      for (const observe::ProcessUse& use : m.other_processes) named += use.bytes;
      return Format("Other processes hold {}: without them it would have fit.",
                    FormatBytes(std::max(named, m.others().value_or(Bytes(0)))));
    }
    case OomCause::kFragmentation:
      return Format(
          "{} are reserved and free, more than was asked for, but not in one piece: fragmentation.",
          size(m.unallocated()));
    case OomCause::kFull:
      return "What this process allocated fills what it may have.";
    case OomCause::kUnknown:
      return "The message says no more.";
  }
  return "";
}

void AddByCause(OomCause cause, std::vector<std::string>& next) {
  switch (cause) {
    case OomCause::kFragmentation:
      next.emplace_back("PYTORCH_ALLOC_CONF=expandable_segments:True joins the free pieces");
      break;
    case OomCause::kOtherProcesses:
      next.emplace_back("end the other processes (headroom watch shows them), or take another GPU");
      break;
    case OomCause::kCappedByFraction:
      next.emplace_back("raise or drop torch.cuda.set_per_process_memory_fraction");
      break;
    case OomCause::kRequestBeyondDevice:
      next.emplace_back(
          "one tensor is too large for any setting of the allocator: a smaller batch or a shorter "
          "sequence");
      break;
    case OomCause::kFull:
    case OomCause::kUnknown:
      break;
  }
}

void AddByKind(Kind kind, std::vector<std::string>& next) {
  if (kind == Kind::kLogitsLoss) {
    next.emplace_back(
        "logits take batch x tokens x vocabulary: a loss in chunks (use_liger_kernel=True) keeps "
        "one chunk of them");
  }
  if (kind == Kind::kAttention || kind == Kind::kAttentionScores) {
    next.emplace_back("attn_implementation=\"sdpa\" computes attention without writing out scores");
  }
}

void AddByPhase(const std::string& phase, std::vector<std::string>& next) {
  if (phase == "load") {
    next.emplace_back(
        "the weights alone are too much: load them in bfloat16 (dtype), quantized, or over several "
        "GPUs (device_map)");
  } else if (phase == "optimizer") {
    next.emplace_back(
        "the first step creates the optimizer's state: optim=\"adamw_bnb_8bit\" keeps it in a "
        "quarter, adamw_torch_fused makes no copies beside it");
  } else if (phase == "evaluation") {
    next.emplace_back(
        "predictions pile up on the GPU: eval_accumulation_steps=1 moves them off, "
        "prediction_loss_only=True drops them, per_device_eval_batch_size makes them smaller");
  } else if (phase == "generation") {
    next.emplace_back(
        "the cache of keys and values grows with batch x tokens: fewer beams or sequences at once, "
        "or cache_implementation=\"offloaded\"");
  } else if (phase == "save") {
    next.emplace_back(
        "saving copies what it writes: a state dict on the CPU (offload_to_cpu, "
        "cpu_offload) needs none of the GPU");
  } else if (phase == "forward" || phase == "backward") {
    next.emplace_back(
        "half of per_device_train_batch_size with twice gradient_accumulation_steps trains the "
        "same");
    next.emplace_back("gradient_checkpointing=True keeps one layer's activations at a time");
  }
}

std::vector<std::string> NextSteps(const OomMessage& message, Kind kind) {
  std::vector<std::string> next;
  for (const OomCause cause : observe::Causes(message)) AddByCause(cause, next);
  AddByKind(kind, next);
  AddByPhase(message.phase, next);
  if (message.traceback.empty()) {
    next.emplace_back("give the whole traceback or log: it tells the phase");
  }
  next.emplace_back(
      "torch.cuda.memory._record_memory_history() at the start and _dump_snapshot(\"oom.pickle\") "
      "on failure tell who held the memory: headroom explain reads the file");
  return next;
}

// The most that this process could reserve, from the message's figures; nothing when they do not
// tell.
std::optional<Bytes> CapOf(const OomMessage& m, Bytes context) {
  if (m.allowed) return m.allowed;
  if (!m.capacity) return std::nullopt;
  const Bytes others = m.others().value_or(Bytes(0));
  return *m.capacity - others - m.outside_allocator().value_or(context);
}

bool Near(Bytes a, Bytes b) { return std::llabs((a - b).count()) * 100 <= b.count(); }

struct Vocabulary {
  int64_t size = 0;
  std::string model;
};

// Of the given model, else of all that are known by name, no size twice. Those of causal language
// models first: the others' logits are rarely what a batch fails at.
std::vector<Vocabulary> Vocabularies(const PlanOptions* options) {
  std::vector<Vocabulary> all;
  const auto add = [&](const ModelConfig& config, std::string_view name) {
    const int64_t size = config.MaybeInt("vocab_size").value_or(0);
    const bool known =
        std::ranges::any_of(all, [&](const Vocabulary& other) { return other.size == size; });
    if (size > 0 && !known) all.push_back({size, std::string(name)});
  };
  if (options != nullptr) {
    const Result<ResolvedModel> model = ResolveModel(*options);
    if (model.ok()) add(model->config, model->name);
    return all;
  }
  for (const bool causal : {true, false}) {
    for (const KnownModel& model : KnownModels()) {
      const Result<ModelConfig> config = ModelConfig::FromJson(model.config_json, model.name);
      if (!config.ok() || (DefaultTaskOf(*config).task == Task::kCausalLm) != causal) continue;
      add(*config, model.name);
    }
  }
  return all;
}

// A request as large as the logits of a whole batch. PyTorch asks the device for multiples of 2 MiB
// (kRoundLarge, c10/core/AllocatorConfig.h, 2.11) and its message names those. Only powers of two
// tokens are tried: of other numbers some would fit any request.
std::string GuessLogits(Bytes requested, const PlanOptions* options) {
  if (requested < MiB(64)) return "";
  for (const Vocabulary& vocabulary : Vocabularies(options)) {
    for (const int64_t element : {4, 2}) {
      for (int64_t tokens = 256; tokens <= (int64_t{1} << 20); tokens *= 2) {
        if (RoundUp(Bytes(tokens * vocabulary.size * element), MiB(2)) != requested) continue;
        return Format(
            "Probably logits and loss tipped it over: so much take the logits of {} tokens in {} "
            "over a vocabulary of {} ({}).",
            Thousands(tokens), element == 4 ? "float32" : "16 bits", Thousands(vocabulary.size),
            vocabulary.model);
      }
    }
  }
  return "";
}

Result<std::optional<OomPlan>> PlanOf(const OomMessage& message, const PlanOptions& options) {
  HEADROOM_ASSIGN_OR_RETURN(const Plan free_plan, MakePlan(options));
  const PlanReport& report = free_plan.report;
  const Bytes context = report.device - report.reserved;
  std::optional<Bytes> cap = CapOf(message, context);
  if (!cap && report.header.verdict) cap = report.header.verdict->cap;
  if (!cap || *cap <= Bytes(0)) return std::optional<OomPlan>();
  PlanOptions limited = options;
  limited.memory = *cap + context;
  HEADROOM_ASSIGN_OR_RETURN(const Plan plan, MakePlan(limited));
  OomPlan out;
  out.model = report.header.model;
  out.recipe = report.header.recipe;
  out.allocated = report.allocated;
  out.reserved = report.reserved;
  out.cap = *cap;
  out.verdict = *plan.report.header.verdict;
  if (out.verdict.failure) {
    out.same_phase = out.verdict.failure->phase == message.phase;
    out.same_request =
        message.requested && Near(out.verdict.failure->requested, *message.requested);
  }
  if (!out.verdict.fits) {
    // What fit cannot search (a sharded run) leaves the rest of the report as it is.
    Result<FitReport> offers =
        MakeFit(limited, {.batch = true, .sequence = false, .lora_rank = false, .changes = true});
    if (offers.ok()) out.offers = std::move(offers).value();
  }
  return std::optional(std::move(out));
}

}  // namespace

Result<OomReport> MakeOomReport(std::string_view text, std::string name, const PlanOptions* model) {
  Result<OomMessage> parsed = observe::ParseOomMessage(text);
  if (!parsed.ok()) return parsed.error().In(name);
  const OomMessage& message = *parsed;
  OomReport report;
  report.name = std::move(name);
  report.message = message.text;
  report.wording = message.wording;
  report.occurrences = message.occurrences;
  report.device = message.device;
  report.requested = message.requested;
  report.capacity = message.capacity;
  report.others = message.others();
  report.process = message.process;
  report.context = message.outside_allocator();
  report.reserved = message.reserved;
  report.allocated = message.allocated;
  report.cache = message.unallocated();
  report.free = message.free;
  report.allowed = message.allowed;
  for (const observe::ProcessUse& use : message.other_processes) {
    report.processes.emplace_back(use.pid, use.bytes);
  }
  report.phase = message.phase;
  report.kind = message.kind;
  if (const observe::TracebackFrame* frame = message.where()) {
    report.place = Format("{}:{} {}", observe::BaseName(frame->file), frame->line, frame->function);
    report.code = frame->code;
  }
  if (message.traceback.empty() && message.requested) {
    report.guess = GuessLogits(*message.requested, model);
    if (!report.guess.empty()) report.kind = Kind::kLogitsLoss;
  }
  for (const OomCause cause : observe::Causes(message)) {
    report.causes.push_back(CauseSentence(cause, message));
  }
  report.next = NextSteps(message, report.kind);
  if (model != nullptr) {
    HEADROOM_ASSIGN_OR_RETURN(report.plan, PlanOf(message, *model));
  }
  return report;
}

}  // namespace headroom::cli
