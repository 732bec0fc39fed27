// SPDX-License-Identifier: Apache-2.0
#include "model/yaml_text.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <utility>

#include "base/format.h"
#include "model/json_text.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 16;
constexpr size_t kMostNodes = 20000;

bool IsAnyOf(std::string_view text, std::initializer_list<std::string_view> choices) {
  return std::ranges::find(choices, text) != choices.end();
}

// A plain scalar as PyYAML's safe_load takes it (YAML 1.1), save that 5e-5 is a number here.
Json ScalarValue(const std::string& tag, const std::string& text) {
  const bool quoted = tag == "!";
  if (quoted) return text;
  if (IsAnyOf(text, {"", "~", "null", "Null", "NULL"})) {
    return nullptr;
  }
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (IsAnyOf(lower, {"true", "yes", "on"})) return true;
  if (IsAnyOf(lower, {"false", "no", "off"})) return false;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  int64_t whole = 0;
  if (const auto [rest, error] = std::from_chars(begin, end, whole);
      error == std::errc() && rest == end) {
    return whole;
  }
  double number = 0;
  if (const auto [rest, error] = std::from_chars(begin, end, number);
      error == std::errc() && rest == end && std::isfinite(number)) {
    return number;
  }
  return text;
}

// Turns yaml-cpp's events into a Json value. Its own node tree is not used, because it has no limit
// on nodes; here the first value beyond the limits ends the parse.
class JsonBuilder final : public YAML::EventHandler {
 public:
  struct Refusal {
    YAML::Mark mark;
    std::string why;
  };

  const Json& root() const { return root_; }
  bool has_document() const { return nodes_ > 0; }
  const std::vector<std::string>& repeated_keys() const { return repeated_keys_; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { AddLeaf(mark, nullptr); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& text) override {
    if (WantsKey()) return TakeKey(mark, text);
    AddLeaf(mark, ScalarValue(tag, text));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{mark, "an alias (*name), which is not read here: write the value out"};
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(mark, Json::array());
  }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(mark, Json::object());
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapEnd() override { Close(); }

 private:
  struct Level {
    Json value;
    std::optional<std::string> key;  // of a map: the key whose value comes next
  };

  bool WantsKey() const {
    return !levels_.empty() && levels_.back().value.is_object() && !levels_.back().key;
  }

  void TakeKey(const YAML::Mark& mark, const std::string& key) {
    Count(mark);
    Level& map = levels_.back();
    if (levels_.size() == 1 && map.value.contains(key)) repeated_keys_.push_back(key);
    map.key = key;
  }

  void Count(const YAML::Mark& mark) {
    if (++nodes_ > kMostNodes) throw Refusal{mark, "more values than such a file can need"};
  }

  void AddLeaf(const YAML::Mark& mark, Json value) {
    Count(mark);
    if (WantsKey()) throw Refusal{mark, "a key that is no plain word"};
    Add(std::move(value));
  }

  void Open(const YAML::Mark& mark, Json empty) {
    Count(mark);
    if (WantsKey()) throw Refusal{mark, "a key that is no plain word"};
    if (levels_.size() >= kDeepest) {
      throw Refusal{mark, Format("nested more than {} levels deep", kDeepest)};
    }
    levels_.push_back({std::move(empty), std::nullopt});
  }

  void Close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    Add(std::move(value));
  }

  void Add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& parent = levels_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else {
      parent.value[*parent.key] = std::move(value);
      parent.key.reset();
    }
  }

  std::vector<Level> levels_;
  Json root_;
  size_t nodes_ = 0;
  std::vector<std::string> repeated_keys_;
};

}  // namespace

Result<Json> ParseYamlMapping(std::string_view text, std::string_view origin, Bytes limit,
                              std::vector<std::string>& warnings) {
  if (static_cast<int64_t>(text.size()) > limit.count()) {
    return Error::BadInput(
        Format("{}: larger than {}, the most that is read here", origin, FormatBytes(limit)));
  }
  const auto refused = [&](const YAML::Mark& mark, std::string_view why) {
    return Error::BadInput(
        Format("{}: {} at line {}, column {}", origin, why, mark.line + 1, mark.column + 1));
  };
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    JsonBuilder first;
    if (!parser.HandleNextDocument(first) || !first.root().is_object()) {
      return Error::BadInput(
          Format("{}: neither a JSON object nor a YAML mapping such as \"bf16: true\"", origin));
    }
    JsonBuilder second;
    if (parser.HandleNextDocument(second) && second.has_document()) {
      return Error::BadInput(Format("{}: holds more than one YAML document; keep one", origin));
    }
    for (const std::string& key : first.repeated_keys()) {
      warnings.push_back(Format("{}: {} stands twice; the last counts", origin, Quoted(key)));
    }
    return first.root();
  } catch (const JsonBuilder::Refusal& refusal) {
    return refused(refusal.mark, refusal.why);
  } catch (const YAML::Exception& error) {
    return refused(error.mark, "not valid YAML");
  }
}

}  // namespace headroom
