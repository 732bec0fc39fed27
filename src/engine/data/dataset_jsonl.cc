// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"
#include "base/file.h"
#include "base/format.h"
#include "engine/data/dataset.h"
#include "engine/data/lines.h"
#include "model/json_text.h"

namespace headroom::engine {
namespace {

using Json = nlohmann::json;

constexpr Bytes kLargestFile = GiB(4);
constexpr Bytes kLongestLine = MiB(64);

// The whole numbers of the list `key`, from `least` to below `end`; empty when it is not there.
Result<std::vector<int32_t>> ReadNumbers(const Json& line, const char* key, int64_t least,
                                         int64_t end) {
  std::vector<int32_t> numbers;
  const auto found = line.find(key);
  if (found == line.end()) return numbers;
  if (!found->is_array()) return Error::BadInput(Format("{} is no list", key));
  numbers.reserve(found->size());
  for (const Json& value : *found) {
    if (!value.is_number_integer()) {
      return Error::BadInput(Format("{}: {} is no whole number", key, Shown(value)));
    }
    const auto number = value.get<int64_t>();
    if (number < least || number >= end) {
      return Error::BadInput(
          Format("{}: {} is beyond the vocabulary of {} tokens", key, Shown(value), end));
    }
    numbers.push_back(static_cast<int32_t>(number));
  }
  return numbers;
}

// Cuts off what the mask says is padding.
Status CutPadding(const Json& line, Example& example) {
  HEADROOM_ASSIGN_OR_RETURN(const std::vector<int32_t> mask,
                            ReadNumbers(line, "attention_mask", 0, 2));
  if (mask.empty()) return {};
  if (mask.size() != example.ids.size()) {
    return Error::BadInput(
        Format("attention_mask has {} numbers and input_ids {}", mask.size(), example.ids.size()));
  }
  const auto padding = std::ranges::find(mask, 0);
  if (std::find(padding, mask.end(), 1) != mask.end()) {
    return Error::BadInput("attention_mask: zeros before ones; padding belongs behind the text");
  }
  const auto kept = static_cast<size_t>(padding - mask.begin());
  const bool per_token = example.decoder_ids.empty() && example.labels.size() == example.ids.size();
  if (per_token) example.labels.resize(kept);
  if (!example.type_ids.empty()) example.type_ids.resize(kept);
  example.ids.resize(kept);
  return {};
}

Status ReadLabels(const Json& line, int64_t vocabulary, Example& example) {
  const auto found = line.find("labels");
  if (found == line.end()) {
    example.labels = example.ids;
    return {};
  }
  if (found->is_number_integer()) {
    const auto label = found->get<int64_t>();
    if (label < 0 || label > std::numeric_limits<int32_t>::max()) {
      return Error::BadInput(Format("labels: {} is no class", Shown(*found)));
    }
    example.labels = {static_cast<int32_t>(label)};
    return {};
  }
  HEADROOM_ASSIGN_OR_RETURN(example.labels, ReadNumbers(line, "labels", kIgnoredLabel, vocabulary));
  const auto negative = [](int32_t label) { return label < 0 && label != kIgnoredLabel; };
  if (std::ranges::any_of(example.labels, negative)) {
    return Error::BadInput("labels: a negative number other than -100");
  }
  const size_t outputs =
      example.decoder_ids.empty() ? example.ids.size() : example.decoder_ids.size();
  if (example.labels.size() != outputs && example.labels.size() != 1) {
    return Error::BadInput(Format("labels has {} numbers, where {} has {}", example.labels.size(),
                                  example.decoder_ids.empty() ? "input_ids" : "decoder_input_ids",
                                  outputs));
  }
  return {};
}

Result<Example> ReadExample(std::string_view text, int64_t vocabulary) {
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const Json line,
                            ParseJsonObject(text, "example", kLongestLine, ignored));
  Example example;
  HEADROOM_ASSIGN_OR_RETURN(example.ids, ReadNumbers(line, "input_ids", 0, vocabulary));
  HEADROOM_ASSIGN_OR_RETURN(example.type_ids, ReadNumbers(line, "token_type_ids", 0, vocabulary));
  HEADROOM_ASSIGN_OR_RETURN(example.decoder_ids,
                            ReadNumbers(line, "decoder_input_ids", 0, vocabulary));
  if (!example.type_ids.empty() && example.type_ids.size() != example.ids.size()) {
    return Error::BadInput(Format("token_type_ids has {} numbers and input_ids {}",
                                  example.type_ids.size(), example.ids.size()));
  }
  HEADROOM_RETURN_IF_ERROR(ReadLabels(line, vocabulary, example));
  HEADROOM_RETURN_IF_ERROR(CutPadding(line, example));
  if (example.ids.empty()) return Error::BadInput("no input_ids, or padding alone");
  return example;
}

}  // namespace

Result<Dataset> LoadPretokenised(const std::filesystem::path& path, int64_t vocabulary) {
  HEADROOM_CHECK(vocabulary > 0 && vocabulary <= std::numeric_limits<int32_t>::max(),
                 "a vocabulary of another size than ids have");
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestFile));
  std::vector<Example> examples;
  int64_t number = 0;
  for (const std::string_view line : LinesOf(text)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Example> example = ReadExample(line, vocabulary);
    if (!example.ok()) return example.error().In(Format("{}: line {}", path.string(), number));
    examples.push_back(*std::move(example));
  }
  if (examples.empty()) {
    return Error::BadInput(Format("{}: holds no example", path.string()));
  }
  return Dataset(std::move(examples));
}

}  // namespace headroom::engine
