// SPDX-License-Identifier: Apache-2.0
//
// The wordings, oldest first, from THC/THCCachingAllocator.cpp, c10/cuda/CUDACachingAllocator.cpp,
// CUDAMallocAsyncAllocator.cpp, aten/src/ATen/mps/MPSAllocator.mm and c10/core/impl/alloc_cpu.cpp:
//
//   0.4       cuda runtime error (2) : out of memory at …
//   1.0-1.4   Tried to allocate S (GPU N; S total capacity; S already allocated; S free; S cached)
//   1.5-2.0   … ; S free; S reserved in total by PyTorch)            (NPU: S current active; too)
//   2.1       … . GPU N has a total capacty of S of which S is free. …   (the typo is PyTorch's)
//   2.2-2.11  … . GPU N has a total capacity of S of which S is free. Process P has S memory in
//   use.
//             Including non-PyTorch memory, this process has S memory in use. S allowed; Of the
//             allocated memory S is allocated by PyTorch, with S allocated in private pools (e.g.,
//             CUDA Graphs), and S is reserved by PyTorch but unallocated.
#include "observe/oom_message.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>

#include "observe/frame_facts.h"
#include "observe/string_table.h"
#include "observe/traceback.h"

namespace headroom::observe {
namespace {

constexpr size_t kLongestMessage = 3000;
// A log may repeat its error for every rank and retry; the last ones are looked at.
constexpr size_t kMostMessages = 256;

// What announces a message. All are matched without regard to case.
constexpr std::string_view kMarkers[] = {
    "out of memory",
    "would exceed allowed memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "defaultcpuallocator: can't allocate memory",
    "defaultcpuallocator: not enough memory",
};

char Lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

// Positions of messages in the text, given in lower case. Two markers in one sentence are one.
std::vector<size_t> FindMessages(std::string_view lower) {
  std::vector<size_t> places;
  for (const std::string_view marker : kMarkers) {
    for (size_t at = lower.find(marker); at != std::string_view::npos;
         at = lower.find(marker, at + marker.size())) {
      places.push_back(at);
    }
  }
  std::sort(places.begin(), places.end());
  return places;
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// "1.71 GiB", "0 bytes", "22.00 MB": PyTorch's sizes are powers of 1024 under every name.
struct SizeText {
  Bytes bytes;
  size_t length = 0;
};
std::optional<SizeText> SizeAt(std::string_view text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end == text.data() || !(number >= 0) || number > 1e15) {
    return std::nullopt;
  }
  size_t at = static_cast<size_t>(end - text.data());
  while (at < text.size() && IsSpace(text[at])) ++at;
  const std::string unit = LowerCase(text.substr(at, 5));
  const struct {
    std::string_view name;
    int shift;
  } units[] = {{"bytes", 0}, {"byte", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40},
               {"kb", 10},   {"mb", 20},  {"gb", 30},  {"tb", 40},  {"b", 0}};
  for (const auto& [name, shift] : units) {
    if (!unit.starts_with(name)) continue;
    const double bytes = std::ldexp(number, shift);
    if (bytes > 1e18) return std::nullopt;
    return SizeText{Bytes(static_cast<int64_t>(std::llround(bytes))), at + name.size()};
  }
  return std::nullopt;
}

// The message on one line, and questions to it.
class Sentence {
 public:
  explicit Sentence(std::string text) : text_(std::move(text)), lower_(LowerCase(text_)) {}

  const std::string& text() const { return text_; }
  bool Has(std::string_view phrase) const { return lower_.find(phrase) != std::string::npos; }

  // The size right behind the phrase.
  std::optional<Bytes> After(std::string_view phrase) const {
    for (size_t at = lower_.find(phrase); at != std::string::npos;
         at = lower_.find(phrase, at + 1)) {
      size_t start = at + phrase.size();
      while (start < lower_.size() && (IsSpace(lower_[start]) || lower_[start] == ':')) ++start;
      if (const auto size = SizeAt(std::string_view(lower_).substr(start))) return size->bytes;
    }
    return std::nullopt;
  }

  // The size right in front of the phrase.
  std::optional<Bytes> Before(std::string_view phrase) const {
    const size_t at = lower_.find(phrase);
    if (at == std::string::npos) return std::nullopt;
    // A size is a number and a unit: it starts at the last place from which one ends here.
    size_t start = at;
    while (start > 0 && at - start < 24) {
      --start;
      const bool begins = std::isdigit(static_cast<unsigned char>(lower_[start])) != 0 &&
                          (start == 0 || !IsNumber(lower_[start - 1]));
      if (!begins) continue;
      const auto size = SizeAt(std::string_view(lower_).substr(start, at - start));
      if (size && OnlySpace(start + size->length, at)) return size->bytes;
    }
    return std::nullopt;
  }

  std::optional<int> NumberAfter(std::string_view phrase) const {
    for (size_t at = lower_.find(phrase); at != std::string::npos;
         at = lower_.find(phrase, at + 1)) {
      int number = 0;
      const char* first = lower_.data() + at + phrase.size();
      const auto [end, failure] = std::from_chars(first, lower_.data() + lower_.size(), number);
      if (failure == std::errc() && number >= 0) return number;
    }
    return std::nullopt;
  }

  // "Process 1234 has 3.20 GiB memory in use." for every other process.
  std::vector<ProcessUse> OtherProcesses() const {
    constexpr std::string_view kProcess = "process ";
    std::vector<ProcessUse> uses;
    for (size_t at = lower_.find(kProcess); at != std::string::npos && uses.size() < 256;
         at = lower_.find(kProcess, at + 1)) {
      uint32_t pid = 0;
      const char* first = lower_.data() + at + kProcess.size();
      const auto [end, failure] = std::from_chars(first, lower_.data() + lower_.size(), pid);
      if (failure != std::errc()) continue;
      const std::string_view rest(end, static_cast<size_t>(lower_.data() + lower_.size() - end));
      if (!rest.starts_with(" has ")) continue;
      if (const auto size = SizeAt(rest.substr(5))) uses.push_back({pid, size->bytes});
    }
    return uses;
  }

 private:
  static bool IsNumber(char c) { return (c >= '0' && c <= '9') || c == '.'; }
  bool OnlySpace(size_t from, size_t to) const {
    while (from < to && IsSpace(lower_[from])) ++from;
    return from >= to;
  }

  std::string text_;
  std::string lower_;
};

// The line that holds the marker and what belongs to it: messages wrap in terminals and go over
// several lines under cudaMallocAsync. An empty line or a new traceback ends them.
std::string MessageAround(std::string_view text, size_t marker) {
  const size_t line = text.rfind('\n', marker);
  size_t at = line == std::string_view::npos ? 0 : line + 1;
  if (marker - at > kLongestMessage / 2) at = marker;  // a log of one endless line
  std::string message;
  bool at_line_start = true;
  for (; at < text.size() && message.size() < kLongestMessage; ++at) {
    const std::string_view rest = text.substr(at);
    if (at_line_start && at > marker) {
      const std::string_view next = rest.substr(0, rest.find('\n'));
      const bool blank = std::all_of(next.begin(), next.end(), IsSpace);
      const bool other = next.find("Traceback (most") != std::string_view::npos ||
                         next.find("  File \"") != std::string_view::npos;
      if (blank || other) break;
    }
    at_line_start = text[at] == '\n';
    const bool space = IsSpace(text[at]);
    if (!space) {
      message += text[at];
    } else if (!message.empty() && message.back() != ' ') {
      message += ' ';
    }
  }
  return MakePrintable(message);
}

OomMessage::Backend BackendOf(const Sentence& sentence) {
  using Backend = OomMessage::Backend;
  if (sentence.Has("hip out of memory") || sentence.Has("hip error")) return Backend::kHip;
  if (sentence.Has("xpu out of memory")) return Backend::kXpu;
  if (sentence.Has("npu out of memory")) return Backend::kNpu;
  if (sentence.Has("mps backend out of memory")) return Backend::kMps;
  if (sentence.Has("defaultcpuallocator")) return Backend::kCpu;
  return Backend::kCuda;
}

std::string WordingOf(const Sentence& s) {
  if (s.Has("capacty of")) return "PyTorch 2.1";
  if (s.Has("has a total capacity of")) return "PyTorch 2.2 or newer";
  if (s.Has("reserved in total by pytorch")) return "PyTorch 1.5 to 2.0";
  if (s.Has("total capacity") && s.Has(" cached")) return "PyTorch 1.0 to 1.4";
  if (s.Has("cuda runtime error (2)")) return "PyTorch 0.4 or older";
  if (s.Has("would exceed allowed memory")) return "cudaMallocAsync";
  return "";
}

void ReadNumbers(const Sentence& s, OomMessage* out) {
  out->requested = s.After("tried to allocate ");
  if (!out->requested) out->requested = s.After("requested :");
  out->device = s.NumberAfter("gpu ");
  if (!out->device) out->device = s.NumberAfter("npu ");
  if (!out->device) out->device = s.NumberAfter("on device ");
  out->capacity = s.Before("total capacity");
  if (!out->capacity) out->capacity = s.After("total capacity of ");
  if (!out->capacity) out->capacity = s.After("total capacty of ");
  if (!out->capacity) out->capacity = s.After("device limit :");
  out->free = s.Before("is free");
  if (!out->free) out->free = s.Before("free;");
  if (!out->free) out->free = s.After("free (according to cuda):");
  out->process = s.After("this process has ");
  out->allowed = s.Before("allowed;");
  if (!out->allowed) out->allowed = s.After("max allowed:");
  if (!out->allowed) out->allowed = s.After("memory fraction) :");
  out->allocated = s.Before("already allocated");
  if (!out->allocated) out->allocated = s.Before("is allocated by pytorch");
  if (!out->allocated) out->allocated = s.After("mps allocated:");
  if (!out->allocated) out->allocated = s.After("currently allocated :");
  out->private_pools = s.Before("allocated in private pools");
  out->reserved = s.Before("reserved in total by pytorch");
  if (!out->reserved) out->reserved = s.Before("cached)");
  const std::optional<Bytes> unallocated = s.Before("is reserved by pytorch but unallocated");
  if (!out->reserved && unallocated && out->allocated) {
    out->reserved = *out->allocated + *unallocated;
  }
  // Before 1.5 "cached" left out what tensors use (THCCachingAllocator.cpp, PyTorch 1.0).
  if (out->wording == "PyTorch 1.0 to 1.4" && out->reserved && out->allocated) {
    out->reserved = *out->reserved + *out->allocated;
  }
  out->other_processes = s.OtherProcesses();
  // "no limit" for a fraction that was never set.
  if (out->allowed && out->capacity && *out->allowed >= *out->capacity) out->allowed.reset();
}

bool IsTorchFile(std::string_view file) {
  return file.find("/torch/") != std::string_view::npos || file.starts_with("torch/");
}

// The innermost frame that decides; what stands around it may say more.
void ReadTraceback(OomMessage* out) {
  FrameFacts all = 0;
  std::string phase;
  for (auto frame = out->traceback.rbegin(); frame != out->traceback.rend(); ++frame) {
    const FrameFacts facts = FactsOf(frame->function, frame->file);
    all |= facts;
    // Whatever runs inside the engine (a checkpoint's forward, a hook) is part of the backward
    // pass.
    if (Has(facts, FrameFact::kBackwardCall)) phase = "backward";
    if (!phase.empty()) continue;
    if (Has(facts, FrameFact::kClip) || Has(facts, FrameFact::kOptimizerStep)) {
      phase = "optimizer";
    } else if (Has(facts, FrameFact::kSave)) {
      phase = "save";
    } else if (Has(facts, FrameFact::kLoad)) {
      phase = "load";
    } else if (Has(facts, FrameFact::kData)) {
      phase = "data";
    } else if (Has(facts, FrameFact::kForward)) {
      phase = "forward";
    }
  }
  const bool running = phase == "forward" || phase.empty();
  if (running && Has(all, FrameFact::kGenerate)) phase = "generation";
  if (running && Has(all, FrameFact::kEvaluation)) phase = "evaluation";
  out->phase = phase;
  if (Has(all, FrameFact::kLoss)) {
    out->kind = Kind::kLogitsLoss;
  } else if (Has(all, FrameFact::kAttention)) {
    out->kind = Kind::kAttention;
  } else if (Has(all, FrameFact::kActivationFunction)) {
    out->kind = Kind::kMlp;
  }
}

}  // namespace

const TracebackFrame* OomMessage::where() const {
  for (auto frame = traceback.rbegin(); frame != traceback.rend(); ++frame) {
    const bool plumbing = observe::Has(FactsOf(frame->function, frame->file), FrameFact::kPlumbing);
    if (!IsTorchFile(frame->file) && !plumbing) return &*frame;
  }
  return traceback.empty() ? nullptr : &traceback.back();
}

std::optional<Bytes> OomMessage::unallocated() const {
  if (!reserved || !allocated) return std::nullopt;
  return std::max(Bytes(0), *reserved - *allocated);
}

std::optional<Bytes> OomMessage::outside_allocator() const {
  if (!process || !reserved) return std::nullopt;
  return std::max(Bytes(0), *process - *reserved);
}

std::optional<Bytes> OomMessage::others() const {
  if (!capacity || !free || !process) return std::nullopt;
  return std::max(Bytes(0), *capacity - *free - *process);
}

std::vector<OomCause> Causes(const OomMessage& m) {
  std::vector<OomCause> causes;
  if (!m.requested) return {OomCause::kUnknown};
  const std::optional<Bytes> most = m.allowed ? m.allowed : m.capacity;
  if (most && *m.requested > *most) causes.push_back(OomCause::kRequestBeyondDevice);
  const bool room_on_device = m.free && *m.free >= *m.requested;
  if (m.allowed && room_on_device) causes.push_back(OomCause::kCappedByFraction);
  Bytes others = m.others().value_or(Bytes(0));
  Bytes named;
  for (const ProcessUse& use : m.other_processes) named += use.bytes;
  others = std::max(others, named);
  const bool would_fit = m.free && *m.free + others >= *m.requested;
  if (!room_on_device && others > Bytes(0) && would_fit && others >= MiB(512)) {
    causes.push_back(OomCause::kOtherProcesses);
  }
  if (m.unallocated() && *m.unallocated() >= *m.requested) {
    causes.push_back(OomCause::kFragmentation);
  }
  if (causes.empty()) causes.push_back(m.allocated ? OomCause::kFull : OomCause::kUnknown);
  return causes;
}

bool LooksLikeOomText(std::string_view text) { return !FindMessages(LowerCase(text)).empty(); }

Result<OomMessage> ParseOomMessage(std::string_view text) {
  const std::vector<size_t> places = FindMessages(LowerCase(text));
  if (places.empty()) {
    return Error::BadInput(
        "no out-of-memory message in this text: paste the line that says \"out of memory\", or the "
        "whole traceback");
  }
  // The last message with numbers is read: handlers and launchers repeat its first words only.
  OomMessage best;
  size_t best_place = places.back();
  std::string last;
  int messages = 0;
  const size_t skipped = places.size() - std::min(places.size(), kMostMessages);
  for (const size_t place : std::span(places).subspan(skipped)) {
    OomMessage message;
    const Sentence sentence(MessageAround(text, place));
    if (sentence.text() == last) continue;  // two markers in one message
    last = sentence.text();
    ++messages;
    message.text = sentence.text();
    message.backend = BackendOf(sentence);
    message.wording = WordingOf(sentence);
    ReadNumbers(sentence, &message);
    if (messages > 1 && best.requested && !message.requested) continue;
    best = std::move(message);
    best_place = place;
  }
  best.occurrences = messages + static_cast<int>(skipped);
  best.traceback = LastTraceback(text.substr(0, best_place));
  ReadTraceback(&best);
  return best;
}

}  // namespace headroom::observe
