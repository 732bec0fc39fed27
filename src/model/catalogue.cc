// SPDX-License-Identifier: Apache-2.0
#include "model/catalogue.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "model/catalogue_tables.h"

namespace headroom {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool EqualsIgnoringCase(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string_view BehindSlash(std::string_view name) {
  return name.substr(name.find('/') + 1);  // npos + 1 is 0: a name without organisation is whole
}

bool IsNamed(std::string_view known, std::string_view name) {
  return EqualsIgnoringCase(known, name) || EqualsIgnoringCase(BehindSlash(known), name);
}

const KnownModel* FindListed(std::string_view name) {
  for (const KnownModel& model : KnownModels()) {
    if (IsNamed(model.name, name)) return &model;
  }
  return nullptr;
}

// Whether `name` can stand in a command line as it is.
bool IsRepositoryName(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == 0 || slash == std::string_view::npos || slash + 1 == name.size()) return false;
  if (name.front() == '-') return false;
  return std::all_of(name.begin(), name.end(), [slash, &name](const char& c) {
    const bool is_slash = c == '/' && static_cast<size_t>(&c - name.data()) == slash;
    const char lower = Lower(c);
    return is_slash || (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

std::string NearestModel(std::string_view name) {
  const bool has_organisation = name.find('/') != std::string_view::npos;
  std::vector<std::string_view> candidates;
  const auto add = [&](std::string_view known) {
    candidates.push_back(has_organisation ? known : BehindSlash(known));
  };
  for (const KnownModel& model : KnownModels()) add(model.name);
  for (const ModelAlias& alias : ModelAliases()) add(alias.alias);
  std::string nearest = Nearest(name, candidates);
  // A wrong organisation must not hide a name that is otherwise right.
  if (nearest.empty() && has_organisation) nearest = NearestModel(BehindSlash(name));
  return nearest;
}

}  // namespace

std::span<const KnownModel> KnownModels() {
  static const std::vector<KnownModel> all = [] {
    std::vector<KnownModel> models;
    for (const auto& family :
         {EncoderModels(), GptModels(), LlamaModels(), DecoderModels(), Seq2SeqModels()}) {
      models.insert(models.end(), family.begin(), family.end());
    }
    return models;
  }();
  return all;
}

const KnownModel* FindKnownModel(std::string_view name) {
  if (const KnownModel* model = FindListed(name)) return model;
  for (const ModelAlias& alias : ModelAliases()) {
    if (IsNamed(alias.alias, name)) return FindListed(alias.name);
  }
  return nullptr;
}

Error UnknownModel(std::string_view name) {
  std::string message = "unknown model " + QuotedName(name);
  const std::string nearest = name.size() > 200 ? "" : NearestModel(name);
  message += nearest.empty() ? ". " : ": did you mean \"" + nearest + "\"? ";
  message += "Any model of the Hub is known after: hf download ";
  message += IsRepositoryName(name) ? std::string(name) : "ORG/NAME";
  return Error::BadInput(message + " config.json");
}

std::string QuotedName(std::string_view name) {
  constexpr size_t kLongest = 100;
  std::string text = "\"";
  for (const char c : name.substr(0, kLongest)) {
    const bool control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    text += control ? '?' : c;
  }
  if (name.size() > kLongest) text += "...";
  return text + "\"";
}

}  // namespace headroom
