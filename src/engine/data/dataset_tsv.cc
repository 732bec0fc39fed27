// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/format.h"
#include "engine/data/dataset.h"
#include "engine/data/lines.h"
#include "engine/data/tokenizer.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestTable = GiB(4);
// More classes than rows of any classifier, and few enough that one label cannot ask for gigabytes.
constexpr int32_t kMostClasses = 1'000'000;

struct TsvRow {
  int64_t line = 0;
  std::vector<std::string_view> fields;
};

std::vector<std::string_view> FieldsOf(std::string_view line) {
  std::vector<std::string_view> fields;
  for (size_t begin = 0;;) {
    const size_t end = line.find('\t', begin);
    fields.push_back(line.substr(begin, end - begin));
    if (end == std::string_view::npos) return fields;
    begin = end + 1;
  }
}

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// A file's name and a line of it, for messages.
class Place {
 public:
  explicit Place(const fs::path& path) : path_(path.string()) {}

  Error Refuse(int64_t line, std::string_view what) const {
    return Error::BadInput(Format("{}: line {}: {}", path_, line, what));
  }
  Error In(int64_t line, const Error& error) const {
    return error.In(Format("{}: line {}", path_, line));
  }
  Error Empty() const { return Error::BadInput(path_ + ": holds no example"); }

 private:
  std::string path_;
};

// The rows of a text, blank ones left out. Fails unless all have as many fields as the first, which
// has `least` to `most`.
Result<std::vector<TsvRow>> RowsOf(std::string_view text, size_t least, size_t most,
                                   const Place& place) {
  std::vector<TsvRow> rows;
  int64_t line = 0;
  for (const std::string_view content : LinesOf(text)) {
    ++line;
    if (IsBlank(content)) continue;
    TsvRow row{line, FieldsOf(content)};
    const size_t fields = row.fields.size();
    if (fields < least || fields > most) {
      return place.Refuse(
          line, Format("{} column{}, where {} are needed", fields, fields == 1 ? "" : "s",
                       least == most ? Format("{}", least) : Format("{} or {}", least, most)));
    }
    if (!rows.empty() && fields != rows[0].fields.size()) {
      return place.Refuse(
          line, Format("{} column{}, where line {} has {}", fields, fields == 1 ? "" : "s",
                       rows[0].line, rows[0].fields.size()));
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return place.Empty();
  return rows;
}

bool IsHeading(const TsvRow& row) {
  std::string last(row.fields.back());
  for (char& c : last) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return last == "label" || last == "labels";
}

std::optional<int32_t> NumberIn(std::string_view text) {
  int32_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size() || number < 0) return {};
  return number;
}

// The classes of a column of labels.
class Labels {
 public:
  // `fixed`: the names there are; empty: as the rows have them.
  Labels(std::string_view first, const std::vector<std::string>& fixed)
      : names_(fixed), fixed_(!fixed.empty()), numbers_(!fixed_ && NumberIn(first)) {
    for (size_t id = 0; id < names_.size(); ++id) {
      ids_.emplace(names_[id], static_cast<int32_t>(id));
    }
  }

  Result<int32_t> IdOf(std::string_view label) {
    if (numbers_) {
      const std::optional<int32_t> number = NumberIn(label);
      if (!number || *number >= kMostClasses) {
        return Error::BadInput(Format(
            "label {} is no class number, as the first label is: number all classes from 0, or "
            "name all",
            Quoted(label)));
      }
      return *number;
    }
    if (const auto known = ids_.find(std::string(label)); known != ids_.end()) return known->second;
    if (fixed_) {
      return Error::BadInput(Format("label {} is none of the {} that the training data has",
                                    Quoted(label), names_.size()));
    }
    if (std::ssize(names_) == kMostClasses) {
      return Error::BadInput("more different labels than any classifier has");
    }
    names_.emplace_back(label);
    return ids_.emplace(label, static_cast<int32_t>(names_.size() - 1)).first->second;
  }

  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, int32_t> ids_;
  bool fixed_;
  bool numbers_;
};

// The tokens of a translation's source: they end with `end`, which may be the tokenizer's doing.
Result<std::vector<int32_t>> SourceIds(std::string_view text, const Tokenizer& tokenizer,
                                       int64_t max_length, int32_t end) {
  HEADROOM_ASSIGN_OR_RETURN(Encoding source, tokenizer.Encode(text, {.max_length = max_length}));
  if (source.ids.empty() || source.ids.back() != end) {
    source.ids.resize(std::min(source.ids.size(), static_cast<size_t>(max_length - 1)));
    source.ids.push_back(end);
  }
  return std::move(source.ids);
}

}  // namespace

Result<Dataset> LoadClassificationTsv(const fs::path& path, const Tokenizer& tokenizer,
                                      int64_t max_length, const std::vector<std::string>& names) {
  HEADROOM_CHECK(max_length > 0, "texts of no tokens");
  const Place place(path);
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTable));
  HEADROOM_ASSIGN_OR_RETURN(std::vector<TsvRow> rows, RowsOf(text, 2, 3, place));
  if (IsHeading(rows[0])) rows.erase(rows.begin());
  if (rows.empty()) return place.Empty();
  Labels labels(rows[0].fields.back(), names);
  std::vector<Example> examples;
  for (const TsvRow& row : rows) {
    EncodeOptions options{.max_length = max_length};
    if (row.fields.size() == 3) options.pair = row.fields[1];
    Result<Encoding> encoding = tokenizer.Encode(row.fields[0], options);
    if (!encoding.ok()) return place.In(row.line, encoding.error());
    if (encoding->ids.empty()) return place.Refuse(row.line, "an empty text");
    const Result<int32_t> label = labels.IdOf(row.fields.back());
    if (!label.ok()) return place.In(row.line, label.error());
    examples.push_back({.ids = std::move(encoding->ids),
                        .type_ids = std::move(encoding->type_ids),
                        .labels = {*label}});
  }
  Dataset dataset(std::move(examples));
  dataset.set_label_names(labels.names());
  return dataset;
}

Result<Dataset> LoadTranslationTsv(const fs::path& path, const Tokenizer& tokenizer,
                                   int64_t max_length, int32_t start, int32_t end) {
  HEADROOM_CHECK(max_length > 1, "sentences of no tokens");
  const Place place(path);
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestTable));
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<TsvRow> rows, RowsOf(text, 2, 2, place));
  std::vector<Example> examples;
  for (const TsvRow& row : rows) {
    if (IsBlank(row.fields[0])) return place.Refuse(row.line, "an empty source");
    if (IsBlank(row.fields[1])) return place.Refuse(row.line, "an empty target");
    Result<std::vector<int32_t>> source = SourceIds(row.fields[0], tokenizer, max_length, end);
    if (!source.ok()) return place.In(row.line, source.error());
    Result<Encoding> target = tokenizer.Encode(
        row.fields[1], {.add_special_tokens = false, .max_length = max_length - 1});
    if (!target.ok()) return place.In(row.line, target.error());
    Example example{.ids = *std::move(source), .labels = target->ids, .decoder_ids = {start}};
    example.labels.push_back(end);
    example.decoder_ids.insert(example.decoder_ids.end(), target->ids.begin(), target->ids.end());
    examples.push_back(std::move(example));
  }
  return Dataset(std::move(examples));
}

}  // namespace headroom::engine
