// SPDX-License-Identifier: Apache-2.0
#include "observe/training_args.h"

#include <cmath>
#include <optional>
#include <span>

#include "base/format.h"
#include "observe/byte_window.h"
#include "observe/pickle_reader.h"
#include "observe/zip_member.h"

namespace headroom::observe {
namespace {

using Tag = PickleValue::Tag;

constexpr Bytes kLargestPickle = MiB(16);
constexpr int kDeepest = 8;

// Recognises nothing: every container is kept as it is.
class PlainSchema final : public PickleSchema {
 public:
  PickleValue TakeDict(PickleReader& reader, std::span<const PickleValue> pairs) override {
    (void)reader, (void)pairs;
    return {};
  }
  PickleValue TakeList(PickleReader& reader, std::span<PickleValue> items, uint32_t memo) override {
    (void)reader, (void)items, (void)memo;
    return {};
  }
  PickleValue ExtendDict(PickleReader& reader, PickleValue dict,
                         std::span<const PickleValue> pairs) override {
    (void)reader, (void)pairs;
    return dict;
  }
  PickleValue ExtendList(PickleReader& reader, PickleValue list,
                         std::span<PickleValue> items) override {
    (void)reader, (void)items;
    return list;
  }
  uint32_t MemoOf(PickleValue list) const override {
    (void)list;
    return 0;
  }
  PickleValue WithMemo(PickleValue list, uint32_t memo) const override {
    (void)list, (void)memo;
    return {};
  }
};

class Writer {
 public:
  explicit Writer(PickleReader& reader) : reader_(reader) {}

  // The value as JSON; nothing for what has no plain form.
  std::optional<std::string> Json(PickleValue value, int depth = 0) {
    if (depth > kDeepest) return std::nullopt;
    switch (value.tag()) {
      case Tag::kNone:
        return "null";
      case Tag::kBool:
        return value.number() != 0 ? "true" : "false";
      case Tag::kInt:
        return Format("{}", value.integer());
      case Tag::kFloat: {
        const double number = reader_.AsFloat(value).value_or(0);
        if (!std::isfinite(number)) return std::nullopt;
        return Format("{:e}", number);
      }
      case Tag::kString:
        return Quoted(reader_.strings().Get(StringId(value.number())));
      case Tag::kOpenList:
        return "[]";
      case Tag::kOpenDict:
        return "{}";
      case Tag::kList:
        return List(value, depth);
      case Tag::kDict:
        return Dict(value, depth);
      case Tag::kObject:
        return EnumValue(value, depth);
      default:
        return std::nullopt;
    }
  }

  // `pairs` as an object; values without a plain form are left out.
  template <typename Wanted>
  std::string Object(std::span<const PickleValue> pairs, int depth, const Wanted& wanted) {
    std::string out = "{";
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      if (!pairs[i].is(Tag::kString)) continue;
      const std::string_view key = reader_.strings().Get(StringId(pairs[i].number()));
      if (!wanted(key)) continue;
      const std::optional<std::string> value = Json(pairs[i + 1], depth + 1);
      if (!value) continue;
      out += (out.size() > 1 ? ", " : "") + Quoted(key) + ": " + *value;
    }
    return out + "}";
  }

 private:
  // Strings of the table are printable UTF-8 but for tabs and newlines.
  static std::string Quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      if (c == '\t' || c == '\n') {
        out += ' ';
      } else {
        out += c;
      }
    }
    return out + '"';
  }

  std::optional<std::string> List(PickleValue value, int depth) {
    std::string out = "[";
    for (const PickleValue item : reader_.Items(value)) {
      const std::optional<std::string> text = Json(item, depth + 1);
      if (text) out += (out.size() > 1 ? ", " : "") + *text;
    }
    return out + "]";
  }

  std::optional<std::string> Dict(PickleValue value, int depth) {
    return Object(reader_.Items(value), depth, [](std::string_view) { return true; });
  }

  // Enums of texts are called with their value: IntervalStrategy("no").
  std::optional<std::string> EnumValue(PickleValue value, int depth) {
    const std::span<const PickleValue> parts = reader_.Items(value);
    if (parts.size() != 2 || !parts[1].is(Tag::kTuple)) return std::nullopt;
    const std::span<const PickleValue> arguments = reader_.Items(parts[1]);
    if (arguments.size() != 1 || !arguments[0].is(Tag::kString)) return std::nullopt;
    return Json(arguments[0], depth + 1);
  }

  PickleReader& reader_;
};

// The class that an object would be made of.
std::string_view ClassOf(PickleReader& reader, PickleValue object) {
  const std::span<const PickleValue> parts = reader.Items(object);
  if (!object.is(Tag::kObject) || parts.empty() || !parts[0].is(Tag::kGlobal)) return "";
  return reader.strings().Get(StringId(parts[0].number()));
}

}  // namespace

bool LooksLikeTorchArchive(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

Result<std::string> TrainingArgumentsJson(std::string_view bytes,
                                          const std::function<bool(std::string_view)>& wanted) {
  HEADROOM_ASSIGN_OR_RETURN(const std::string pickle,
                            ReadZipMember(bytes, "data.pkl", kLargestPickle));
  ByteWindow window(pickle);
  PlainSchema schema;
  PickleReader reader(&window, &schema, pickle.size(), PickleReader::Objects::kAsData);
  HEADROOM_ASSIGN_OR_RETURN(const PickleValue top, reader.Run());
  const std::string_view name = ClassOf(reader, top);
  // Derived classes count: Seq2SeqTrainingArguments; TRL's SFTConfig, DPOConfig.
  const bool known = name.ends_with("TrainingArguments") || name.ends_with("Config");
  const std::span<const PickleValue> parts = reader.Items(top);
  if (!known || parts.size() < 3 || !parts[2].is(Tag::kDict)) {
    return Error::BadInput(
        Format("holds {}, no TrainingArguments: give the training_args.bin that Trainer saves",
               name.empty() ? PickleReader::Describe(top) : name));
  }
  return Writer(reader).Object(reader.Items(parts[2]), 0, wanted);
}

}  // namespace headroom::observe
