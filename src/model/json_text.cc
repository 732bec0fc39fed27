// SPDX-License-Identifier: Apache-2.0
#include "model/json_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/format.h"

namespace headroom {
namespace {

using Json = nlohmann::json;

constexpr int kDeepest = 64;
constexpr size_t kLongestShown = 60;

// Invalid UTF-8 can reach a message from a file name or from YAML; dump must not throw on it.
std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Cut(std::string text) {
  if (text.size() <= kLongestShown) return text;
  size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

// "line 3, column 8"; of a text of one line, "column 8".
std::string LineAndColumn(std::string_view text, size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t last_break = before.rfind('\n');
  const size_t column =
      last_break == std::string_view::npos ? before.size() + 1 : before.size() - last_break;
  const size_t first_break = text.find('\n');
  const bool one_line = first_break == std::string_view::npos || first_break + 1 == text.size();
  if (line == 1 && one_line) return Format("column {}", column);
  return Format("line {}, column {}", line, column);
}

}  // namespace

Result<Json> ParseJsonObject(std::string_view text, std::string_view origin, Bytes limit,
                             std::vector<std::string>& warnings) {
  if (static_cast<int64_t>(text.size()) > limit.count()) {
    return Error::BadInput(
        Format("{}: larger than {}, the most that is read here", origin, FormatBytes(limit)));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return Error::BadInput(Format("{}: empty, where a JSON object should be", origin));
  }
  bool too_deep = false;
  std::set<std::string> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool opens =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (opens && depth >= kDeepest) too_deep = true;
    if (event == Json::parse_event_t::key && depth == 1) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys.insert(key).second) {
        warnings.push_back(Format("{}: {} stands twice; the last counts", origin, Quoted(key)));
      }
    }
    return !too_deep;
  };
  try {
    Json value = Json::parse(text, watch);
    if (too_deep) {
      return Error::BadInput(Format("{}: nested more than {} levels deep", origin, kDeepest));
    }
    if (!value.is_object()) {
      return Error::BadInput(
          Format("{}: a JSON object ({{…}}) is needed, not {}", origin, Shown(value)));
    }
    return value;
  } catch (const Json::parse_error& error) {
    const size_t byte = error.byte > 0 ? error.byte - 1 : 0;
    return Error::BadInput(Format("{}: not valid JSON at {}", origin, LineAndColumn(text, byte)));
  } catch (const Json::exception&) {
    return Error::BadInput(Format("{}: holds a number too large to read", origin));
  }
}

std::string Quoted(std::string_view text) { return Cut(Dump(Json(std::string(text)))); }

std::string Shown(const Json& value) { return Cut(Dump(value)); }

}  // namespace headroom
