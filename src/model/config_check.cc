// SPDX-License-Identifier: Apache-2.0
#include "model/config_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "model/json_text.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr int64_t kLargestSize = int64_t{1} << 31;
// Lists with an entry per layer are built; no model comes near this.
constexpr int64_t kMostLayers = 1 << 14;

bool Contains(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

bool IsProbability(std::string_view name) {
  return Contains(name, {"dropout", "pdrop", "layerdrop"});
}

bool IsLayerCount(std::string_view name) {
  return name == "n_layer" || (name.ends_with("layers") && !name.starts_with("max_"));
}

// Whole numbers that may be zero, negative or null although their default is positive.
bool MayBeAnyNumber(std::string_view name) {
  return Contains(name, {"token_id", "window", "pretraining_tp", "bidirectional"});
}

bool IsSize(const ConfigAttribute& attribute) {
  if (!attribute.kinds.starts_with('i') || MayBeAnyNumber(attribute.name)) return false;
  return attribute.value != "0" && !attribute.value.starts_with('-');
}

std::string KindsInWords(std::string_view kinds) {
  static constexpr std::pair<char, std::string_view> kWords[] = {
      {'i', "a whole number"},
      {'f', "a number"},
      {'b', "true or false"},
      {'s', "a string"},
      {'o', "an object"},
      {'l', "a list"},
      {'I', "a list of whole numbers"},
      {'S', "a list of strings"},
      {'?', "null"},
  };
  std::vector<std::string_view> words;
  for (const char kind : kinds) {
    for (const auto& [letter, word] : kWords) {
      if (letter == kind) words.push_back(word);
    }
  }
  return Format("{}", fmt::join(words, " or "));
}

std::string Folded(std::string_view name) {
  std::string folded;
  for (const char c : name) {
    if (c != '-' && c != '_') folded += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return folded;
}

}  // namespace

bool KindMatches(char kind, const Json& value) {
  const auto all = [&](auto is_kind) {
    return value.is_array() && std::ranges::all_of(value, is_kind);
  };
  switch (kind) {
    case 'i':
      return value.is_number_integer();
    case 'f':
      return value.is_number();
    case 'b':
      return value.is_boolean();
    case 's':
      return value.is_string();
    case 'o':
      return value.is_object();
    case 'l':
      return value.is_array();
    case 'I':
      return all([](const Json& element) { return element.is_number_integer(); });
    case 'S':
      return all([](const Json& element) { return element.is_string(); });
    case '?':
      return value.is_null();
    default:
      return false;
  }
}

// nlohmann holds what exceeds int64 as unsigned; both ends are cut off here.
bool IsWithin(const Json& number, int64_t least, int64_t most) {
  if (number.is_number_unsigned()) {
    const uint64_t value = number.get<uint64_t>();
    return value <= static_cast<uint64_t>(most) &&
           (least <= 0 || value >= static_cast<uint64_t>(least));
  }
  const int64_t value = number.get<int64_t>();
  return value >= least && value <= most;
}

Status CheckRange(const ConfigAttribute& attribute, const Json& value) {
  const std::string_view name = attribute.name;
  if (value.is_number_integer()) {
    const int64_t least = IsSize(attribute) ? 1 : -kLargestSize;
    const int64_t most = IsLayerCount(name) ? kMostLayers : kLargestSize;
    if (!IsWithin(value, least, most)) {
      return Error::BadInput(
          Format("\"{}\" must be between {} and {}, not {}", name, least, most, Shown(value)));
    }
  }
  if (value.is_number() && IsProbability(name)) {
    const double probability = value.get<double>();
    if (!(probability >= 0 && probability <= 1)) {
      return Error::BadInput(
          Format("\"{}\" is a probability, from 0 to 1, not {}", name, Shown(value)));
    }
  }
  return {};
}

Status CheckAttribute(const ConfigAttribute& attribute, const Json& value) {
  const bool matches =
      std::ranges::any_of(attribute.kinds, [&](char kind) { return KindMatches(kind, value); });
  if (!matches && !value.is_null()) {
    return Error::BadInput(Format("\"{}\" must be {}, not {}", attribute.name,
                                  KindsInWords(attribute.kinds), Shown(value)));
  }
  if (value.is_array()) {
    for (const Json& element : value) HEADROOM_RETURN_IF_ERROR(CheckRange(attribute, element));
  }
  return CheckRange(attribute, value);
}

Status SettleNull(const ConfigAttribute& attribute, Json& value) {
  if (!value.is_null() || attribute.value == "null") return {};
  if (attribute.kinds.starts_with('b')) {
    value = false;
  } else if (IsProbability(attribute.name)) {
    value = 0.0;
  } else if (!MayBeAnyNumber(attribute.name) &&
             !Contains(attribute.name, {"softcapping", "logit_scale"})) {
    return Error::BadInput(Format("\"{}\" must be {}, not null", attribute.name,
                                  KindsInWords(attribute.kinds.substr(0, 1))));
  }
  return {};
}

Status CheckNested(std::string_view name, const Json& defaults, const Json& value) {
  for (const auto& [key, standard] : defaults.items()) {
    const auto found = value.find(key);
    if (found == value.end() || standard.is_null()) continue;
    const bool both_numbers = standard.is_number() && found->is_number();
    if (!both_numbers && found->type() != standard.type()) {
      return Error::BadInput(Format("\"{}\": \"{}\" must be like {}, not {}", name, key,
                                    Shown(standard), Shown(*found)));
    }
  }
  return {};
}

bool IsMisspelling(std::string_view written, std::string_view known) {
  const std::string a = Folded(written);
  const std::string b = Folded(known);
  if (a.size() < 5 || b.size() < 5) return a == b;
  const auto [from_a, from_b] = std::ranges::mismatch(a, b);
  std::string_view rest_a(from_a, a.end());
  std::string_view rest_b(from_b, b.end());
  while (!rest_a.empty() && !rest_b.empty() && rest_a.back() == rest_b.back()) {
    rest_a.remove_suffix(1);
    rest_b.remove_suffix(1);
  }
  if (rest_a.size() <= 1 && rest_b.size() <= 1) return true;
  return rest_a.size() == 2 && rest_b.size() == 2 && rest_a[0] == rest_b[1] &&
         rest_a[1] == rest_b[0];
}

}  // namespace headroom
