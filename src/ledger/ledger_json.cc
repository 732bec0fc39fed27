// SPDX-License-Identifier: Apache-2.0
#include "ledger/ledger_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "base/format.h"

namespace headroom {
namespace {

using Json = nlohmann::json;
using Type = MemoryEvent::Type;
using Ints = std::vector<int64_t>;
using Strings = std::vector<std::string>;

constexpr std::string_view kFormat = "headroom.ledger";
// One letter per event; the order of MemoryEvent::Type.
constexpr std::string_view kTypeLetters = "afrm";
constexpr int64_t kLargestSize = int64_t{1} << 62;
// A file cannot make the reader hold more names than this; real ledgers have some thousands.
constexpr size_t kMostNames = size_t{1} << 20;
constexpr size_t kMostOps = std::numeric_limits<uint16_t>::max();
constexpr size_t kMostBlocks = std::numeric_limits<uint32_t>::max();

// ---- Writing ----

std::string Quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Writer {
 public:
  void Raw(std::string_view text) { out_.append(text); }
  void Key(std::string_view name) { fmt::format_to(std::back_inserter(out_), "\"{}\":", name); }

  // "name":[…] with one element per item, written by `format(item)`.
  template <typename Items, typename Write>
  void Column(std::string_view name, const Items& items, const Write& format) {
    Key(name);
    char separator = '[';
    for (const auto& item : items) {
      out_ += separator;
      fmt::format_to(std::back_inserter(out_), "{}", format(item));
      separator = ',';
    }
    Raw(separator == '[' ? "[]" : "]");
  }

  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Where every block is allocated.
std::vector<MemoryEvent> Blocks(const Ledger& ledger) {
  std::vector<MemoryEvent> blocks;
  for (const MemoryEvent& event : ledger.events()) {
    if (event.type == Type::kAlloc) blocks.push_back(event);
  }
  return blocks;
}

// What the "value" column holds for an event: a size, a block or a mark, by the event's type.
int64_t ValueOf(const MemoryEvent& event) {
  const bool refers = event.type == Type::kFree || event.type == Type::kMark;
  return refers ? static_cast<int64_t>(event.block) : event.bytes;
}

template <typename Enum>
std::vector<std::string_view> Names(int count) {
  std::vector<std::string_view> names;
  for (int i = 0; i < count; ++i) names.push_back(Name(static_cast<Enum>(i)));
  return names;
}

void WriteTables(const Ledger& ledger, Writer& out) {
  out.Column("components", Names<Component>(kAllocatedComponentCount), Quoted);
  out.Raw(",");
  out.Column("kinds", Names<Kind>(kKindCount), Quoted);
  out.Raw(",\n");
  out.Column("modules", ledger.modules(), Quoted);
  out.Raw(",\n");
  out.Column("ops", ledger.ops(), Quoted);
  out.Raw(",\n\"context\":{");
  out.Column("name", ledger.context_parts(), [](const ContextPart& p) { return Quoted(p.name); });
  out.Raw(",");
  out.Column("bytes", ledger.context_parts(), [](const ContextPart& p) { return p.bytes.count(); });
  out.Raw("},\n");
}

void WriteStream(const Ledger& ledger, Writer& out) {
  const std::vector<MemoryEvent> blocks = Blocks(ledger);
  using Block = MemoryEvent;
  out.Raw("\"blocks\":{");
  out.Column("component", blocks, [](const Block& b) { return static_cast<int>(b.component); });
  out.Raw(",");
  out.Column("kind", blocks, [](const Block& b) { return static_cast<int>(b.kind); });
  out.Raw(",");
  out.Column("module", blocks, [](const Block& b) { return static_cast<uint32_t>(b.module); });
  out.Raw(",");
  out.Column("op", blocks, [](const Block& b) { return static_cast<uint32_t>(b.op); });
  out.Raw("},\n\"events\":{");
  out.Key("type");
  std::string types = "\"";
  for (const MemoryEvent& e : ledger.events()) types += kTypeLetters[static_cast<size_t>(e.type)];
  out.Raw(types + "\",");
  out.Column("value", ledger.events(), ValueOf);
  out.Raw("},\n");
}

void WriteMarks(const Ledger& ledger, Writer& out) {
  const std::span<const PhaseMark> marks = ledger.marks();
  out.Raw("\"marks\":{");
  out.Column("name", marks, [](const PhaseMark& m) { return Quoted(m.name); });
  out.Raw(",");
  out.Column("step", marks, [](const PhaseMark& m) { return m.step; });
  out.Raw(",");
  out.Column("allocated", marks, [](const PhaseMark& m) { return m.allocated.count(); });
  out.Raw(",");
  out.Column("peak", marks, [](const PhaseMark& m) { return m.peak_allocated.count(); });
  out.Raw(",");
  out.Column("reserved", marks, [](const PhaseMark& m) { return m.reserved.count(); });
  out.Raw("},\n");
}

// ---- Reading: the JSON into columns ----

enum class Holds { kNumbers, kTexts };
struct Field {
  std::string_view path;
  Holds holds;
};
constexpr Field kFields[] = {
    {"format", Holds::kTexts},
    {"schema", Holds::kNumbers},
    {"components", Holds::kTexts},
    {"kinds", Holds::kTexts},
    {"modules", Holds::kTexts},
    {"ops", Holds::kTexts},
    {"context.name", Holds::kTexts},
    {"context.bytes", Holds::kNumbers},
    {"blocks.component", Holds::kNumbers},
    {"blocks.kind", Holds::kNumbers},
    {"blocks.module", Holds::kNumbers},
    {"blocks.op", Holds::kNumbers},
    {"events.type", Holds::kTexts},
    {"events.value", Holds::kNumbers},
    {"marks.name", Holds::kTexts},
    {"marks.step", Holds::kNumbers},
    {"marks.allocated", Holds::kNumbers},
    {"marks.peak", Holds::kNumbers},
    {"marks.reserved", Holds::kNumbers},
    {"totals.allocated", Holds::kNumbers},
    {"totals.reserved", Holds::kNumbers},
    {"totals.context", Holds::kNumbers},
    {"totals.device", Holds::kNumbers},
    {"totals.peak_event", Holds::kNumbers},
};

// Every list and every single value of the file, under its dotted path ("events.value"). A single
// value is a list of one. Fields not in kFields are passed over.
class ColumnReader : public nlohmann::json_sax<Json> {
 public:
  ColumnReader() {
    for (const Field& field : kFields) columns_[std::string(field.path)].holds = field.holds;
  }

  const Ints& ints(std::string_view path) const { return columns_.find(path)->second.ints; }
  const Strings& strings(std::string_view path) const {
    return columns_.find(path)->second.strings;
  }
  bool Has(std::string_view path) const { return columns_.find(path)->second.seen; }
  const std::string& problem() const { return problem_; }

  bool start_object(size_t) override {
    if (in_list_) return Fail("an object inside a list");
    if (++depth_ > 2) return Fail("objects nested too deeply");
    if (depth_ == 2) prefix_ = key_ + ".";
    return true;
  }
  bool end_object() override {
    --depth_;
    prefix_.clear();
    target_ = nullptr;
    return true;
  }
  bool start_array(size_t) override {
    if (in_list_ || depth_ == 0) return Fail("a list where none belongs");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    in_list_ = false;
    return true;
  }
  bool key(std::string& name) override {
    key_ = name.substr(0, kLongestKey);
    const auto found = columns_.find(prefix_ + key_);
    target_ = found == columns_.end() ? nullptr : &found->second;
    if (target_ != nullptr && target_->seen) return Fail("stands twice");
    if (target_ != nullptr) target_->seen = true;
    return true;
  }
  bool number_integer(int64_t value) override {
    if (depth_ == 0) return Fail("no JSON object");
    if (target_ == nullptr) return true;
    if (target_->holds != Holds::kNumbers) return Fail("a number where a text belongs");
    target_->ints.push_back(value);
    return true;
  }
  bool number_unsigned(uint64_t value) override {
    if (value > static_cast<uint64_t>(kLargestSize)) return Fail("a number beyond 2^62");
    return number_integer(static_cast<int64_t>(value));
  }
  bool string(std::string& value) override {
    if (depth_ == 0) return Fail("no JSON object");
    if (target_ == nullptr) return true;
    if (target_->holds != Holds::kTexts) return Fail("a text where a number belongs");
    if (target_->strings.size() >= kMostNames) return Fail("more than 2^20 names");
    target_->strings.push_back(value);
    return true;
  }
  bool number_float(double, const std::string&) override { return Other("a fraction"); }
  bool boolean(bool) override { return Other("true or false"); }
  bool null() override { return Other("null"); }
  bool binary(Json::binary_t&) override { return Other("binary"); }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    problem_ = Format("not JSON at byte {}", position);
    return false;
  }

 private:
  static constexpr size_t kLongestKey = 64;

  struct Column {
    Ints ints;
    Strings strings;
    Holds holds = Holds::kNumbers;
    bool seen = false;
  };

  bool Fail(std::string_view what) {
    std::string place = prefix_ + key_;
    // A name of ours stands bare; anything else may hold line breaks and is quoted.
    if (!place.empty() && !columns_.contains(place)) place = Quoted(place);
    problem_ = place.empty() ? std::string(what) : Format("{}: {}", place, what);
    return false;
  }
  bool Other(std::string_view what) {
    if (depth_ == 0) return Fail("no JSON object");
    return target_ == nullptr || Fail(Format("{} instead of a whole number or a text", what));
  }

  std::map<std::string, Column, std::less<>> columns_;
  Column* target_ = nullptr;
  std::string prefix_;
  std::string key_;
  std::string problem_;
  int depth_ = 0;
  bool in_list_ = false;
};

// ---- Reading: the columns into a ledger ----

Error Bad(std::string_view field, std::string_view what) {
  return Error::BadInput(Format("{}: {}", field, what));
}
Error BadAt(std::string_view field, size_t index, std::string_view what) {
  return Error::BadInput(Format("{}[{}]: {}", field, index, what));
}

Status CheckHeader(const ColumnReader& in) {
  if (in.strings("format") != Strings{std::string(kFormat)}) {
    return Error::BadInput(
        Format("is no ledger: \"format\" is not \"{}\" (plan --ledger writes one)", kFormat));
  }
  const Ints& schema = in.ints("schema");
  if (schema.size() != 1) return Bad("schema", "missing");
  if (schema[0] != kLedgerSchema) {
    return Bad("schema", Format("version {}, but this program reads version {}: write the "
                                "ledger again with it",
                                schema[0], kLedgerSchema));
  }
  for (const Field& field : kFields) {
    if (!in.Has(field.path)) return Bad(field.path, "missing");
  }
  return {};
}

// Checks that the named columns hold one value for each of `count` items.
Status CheckLengths(const ColumnReader& in, std::span<const std::string_view> paths, size_t count) {
  for (const std::string_view path : paths) {
    const size_t length = in.ints(path).size() + in.strings(path).size();
    if (length != count) {
      return Bad(path, Format("{} values where {} belong", length, count));
    }
  }
  return {};
}

Status CheckRange(const ColumnReader& in, std::string_view path, size_t limit) {
  const Ints& column = in.ints(path);
  for (size_t i = 0; i < column.size(); ++i) {
    if (column[i] < 0 || static_cast<size_t>(column[i]) >= limit) {
      return BadAt(path, i, Format("{} is outside its table of {}", column[i], limit));
    }
  }
  return {};
}

// The file's own numbering of components or kinds in ours.
template <typename Enum>
Result<std::vector<Enum>> MapNames(const ColumnReader& in, std::string_view path,
                                   std::optional<Enum> (*parse)(std::string_view)) {
  std::vector<Enum> mapped;
  for (const std::string& name : in.strings(path)) {
    const std::optional<Enum> value = parse(name);
    if (!value) return BadAt(path, mapped.size(), Format("unknown name {}", Quoted(name)));
    mapped.push_back(*value);
  }
  return mapped;
}

std::optional<Component> ParseAllocatedComponent(std::string_view name) {
  const std::optional<Component> component = ParseComponent(name);
  const bool allocated = component && static_cast<int>(*component) < kAllocatedComponentCount;
  return allocated ? component : std::nullopt;
}

// Plays the columns into a Ledger, checking each event before the Ledger sees it.
class Player {
 public:
  explicit Player(const ColumnReader& in)
      : in_(in), values_(in.ints("events.value")), marks_(in.strings("marks.name")) {}

  Result<Ledger> Play() {
    HEADROOM_RETURN_IF_ERROR(ReadTables());
    HEADROOM_RETURN_IF_ERROR(ReadContext());
    HEADROOM_ASSIGN_OR_RETURN(const std::string types, CheckColumns());
    ledger_.Reserve(types.size());
    for (size_t at = 0; at < types.size(); ++at) {
      HEADROOM_RETURN_IF_ERROR(PlayEvent(at, types[at], values_[at]));
    }
    HEADROOM_RETURN_IF_ERROR(CheckTotals());
    return std::move(ledger_);
  }

 private:
  Status ReadTables() {
    HEADROOM_ASSIGN_OR_RETURN(components_, MapNames(in_, "components", &ParseAllocatedComponent));
    HEADROOM_ASSIGN_OR_RETURN(kinds_, MapNames(in_, "kinds", &ParseKind));
    if (in_.strings("ops").size() > kMostOps) return Bad("ops", "more than 65,535 names");
    for (const std::string_view table : {"modules", "ops"}) {
      const bool of_modules = table == "modules";
      const Strings& names = in_.strings(table);
      if (names.empty() || !names[0].empty()) return Bad(table, "does not begin with \"\"");
      for (size_t i = 0; i < names.size(); ++i) {
        const size_t id = of_modules ? static_cast<size_t>(ledger_.InternModule(names[i]))
                                     : static_cast<size_t>(ledger_.InternOp(names[i]));
        if (id != i) return BadAt(table, i, Format("{} stands twice", Quoted(names[i])));
      }
    }
    return {};
  }

  Status ReadContext() {
    const Strings& names = in_.strings("context.name");
    const Ints& bytes = in_.ints("context.bytes");
    HEADROOM_RETURN_IF_ERROR(CheckLengths(in_, {{"context.bytes"}}, names.size()));
    std::vector<ContextPart> parts;
    for (size_t i = 0; i < names.size(); ++i) {
      if (bytes[i] < 0 || bytes[i] > kLargestSize / static_cast<int64_t>(names.size())) {
        return BadAt("context.bytes", i, Format("{} is no size", bytes[i]));
      }
      parts.push_back({names[i], Bytes(bytes[i])});
    }
    ledger_.SetContext(std::move(parts));
    return {};
  }

  // The type letters, once every column is known to be as long as what it describes.
  Result<std::string> CheckColumns() {
    if (in_.strings("events.type").size() != 1) return Bad("events.type", "is no text");
    std::string types = in_.strings("events.type")[0];
    const size_t bad = types.find_first_not_of(kTypeLetters);
    if (bad != std::string::npos) {
      return BadAt("events.type", bad, Format("not one of the letters {}", kTypeLetters));
    }
    const auto blocks = static_cast<size_t>(std::count(types.begin(), types.end(), 'a'));
    const auto marks = static_cast<size_t>(std::count(types.begin(), types.end(), 'm'));
    if (types.size() > kMostBlocks) return Bad("events.type", "more than 2^32 events");
    HEADROOM_RETURN_IF_ERROR(CheckLengths(in_, {{"events.value"}}, types.size()));
    HEADROOM_RETURN_IF_ERROR(CheckLengths(
        in_, {{"blocks.component", "blocks.kind", "blocks.module", "blocks.op"}}, blocks));
    HEADROOM_RETURN_IF_ERROR(CheckLengths(
        in_, {{"marks.name", "marks.step", "marks.allocated", "marks.peak", "marks.reserved"}},
        marks));
    HEADROOM_RETURN_IF_ERROR(CheckRange(in_, "blocks.component", components_.size()));
    HEADROOM_RETURN_IF_ERROR(CheckRange(in_, "blocks.kind", kinds_.size()));
    HEADROOM_RETURN_IF_ERROR(CheckRange(in_, "blocks.module", ledger_.modules().size()));
    HEADROOM_RETURN_IF_ERROR(CheckRange(in_, "blocks.op", ledger_.ops().size()));
    return types;
  }

  Status PlayEvent(size_t at, char type, int64_t value) {
    HEADROOM_RETURN_IF_ERROR(type == 'a'   ? PlayAlloc(at, value)
                             : type == 'f' ? PlayFree(at, value)
                             : type == 'r' ? PlayReserve(at, value)
                                           : PlayMark(at, value));
    if (ledger_.allocated() > ledger_.reserved()) {
      return BadAt("events", at,
                   Format("{} bytes allocated, but only {} reserved", ledger_.allocated().count(),
                          ledger_.reserved().count()));
    }
    return {};
  }

  Status PlayAlloc(size_t at, int64_t bytes) {
    if (bytes < 0 || bytes > kLargestSize - ledger_.allocated().count()) {
      return BadAt("events.value", at, Format("{} is no size", bytes));
    }
    const size_t block = live_.size();
    const auto column = [&](std::string_view path) {
      return static_cast<size_t>(in_.ints(path)[block]);
    };
    ledger_.Alloc(Bytes(bytes), components_[column("blocks.component")],
                  kinds_[column("blocks.kind")], ModuleId(column("blocks.module")),
                  OpId(column("blocks.op")));
    live_.push_back(true);
    return {};
  }

  Status PlayFree(size_t at, int64_t block) {
    if (block < 0 || static_cast<size_t>(block) >= live_.size()) {
      return BadAt("events.value", at, Format("block {} is not yet allocated", block));
    }
    if (!live_[static_cast<size_t>(block)]) {
      return BadAt("events.value", at, Format("block {} is freed twice", block));
    }
    live_[static_cast<size_t>(block)] = false;
    ledger_.Free(BlockId(static_cast<uint32_t>(block)));
    return {};
  }

  Status PlayReserve(size_t at, int64_t change) {
    const int64_t reserved = ledger_.reserved().count();
    if (change > kLargestSize - reserved || change < -reserved) {
      return BadAt("events.value", at, Format("reserved cannot change by {}", change));
    }
    ledger_.ChangeReserved(Bytes(change));
    return {};
  }

  Status PlayMark(size_t at, int64_t mark) {
    const size_t next = ledger_.marks().size();
    if (mark != static_cast<int64_t>(next)) {
      return BadAt("events.value", at, Format("mark {} where mark {} belongs", mark, next));
    }
    const int64_t step = in_.ints("marks.step")[next];
    if (step < 0 || step > std::numeric_limits<int>::max()) {
      return BadAt("marks.step", next, Format("{} is no step", step));
    }
    ledger_.Mark(marks_[next], static_cast<int>(step));
    const PhaseMark& made = ledger_.marks().back();
    HEADROOM_RETURN_IF_ERROR(Agree("marks.allocated", next, made.allocated.count()));
    HEADROOM_RETURN_IF_ERROR(Agree("marks.peak", next, made.peak_allocated.count()));
    return Agree("marks.reserved", next, made.reserved.count());
  }

  Status CheckTotals() {
    const Bytes device = ledger_.peak_reserved() + ledger_.context();
    HEADROOM_RETURN_IF_ERROR(Agree("totals.allocated", 0, ledger_.peak_allocated().count()));
    HEADROOM_RETURN_IF_ERROR(Agree("totals.reserved", 0, ledger_.peak_reserved().count()));
    HEADROOM_RETURN_IF_ERROR(Agree("totals.context", 0, ledger_.context().count()));
    HEADROOM_RETURN_IF_ERROR(Agree("totals.device", 0, device.count()));
    return Agree("totals.peak_event", 0, static_cast<int64_t>(ledger_.peak_event()));
  }

  // The file's figure must be what its own events yield.
  Status Agree(std::string_view path, size_t index, int64_t computed) {
    const Ints& column = in_.ints(path);
    if (index >= column.size()) return Bad(path, "missing");
    if (column[index] == computed) return {};
    return BadAt(path, index, Format("{}, but the events yield {}", column[index], computed));
  }

  const ColumnReader& in_;
  const Ints& values_;
  const Strings& marks_;
  std::vector<Component> components_;
  std::vector<Kind> kinds_;
  std::vector<bool> live_;
  Ledger ledger_;
};

}  // namespace

std::string ToJson(const Ledger& ledger) {
  Writer out;
  out.Raw(Format("{{\"format\":\"{}\",\"schema\":{},\n", kFormat, kLedgerSchema));
  WriteTables(ledger, out);
  WriteStream(ledger, out);
  WriteMarks(ledger, out);
  out.Raw(Format(
      "\"totals\":{{\"allocated\":{},\"reserved\":{},\"context\":{},\"device\":{},"
      "\"peak_event\":{}}}}}\n",
      ledger.peak_allocated().count(), ledger.peak_reserved().count(), ledger.context().count(),
      (ledger.peak_reserved() + ledger.context()).count(), ledger.peak_event()));
  return out.Take();
}

Result<Ledger> LedgerFromJson(std::string_view text, std::string_view origin) {
  const std::string where(origin);
  ColumnReader columns;
  if (!Json::sax_parse(text, &columns)) return Error::BadInput(columns.problem()).In(where);
  if (const Status header = CheckHeader(columns); !header.ok()) return header.error().In(where);
  Result<Ledger> ledger = Player(columns).Play();
  if (!ledger.ok()) return ledger.error().In(where);
  return ledger;
}

}  // namespace headroom
