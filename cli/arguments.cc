// SPDX-License-Identifier: Apache-2.0
#include "arguments.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "base/format.h"
#include "base/nearest.h"
#include "report/text.h"

namespace headroom::cli {
namespace {

constexpr int kHelpWidth = 80;
constexpr int kHelpColumn = 32;  // where explanations start

constexpr Flag kHelpFlag = {"--help,-h", Takes::kNothing, "", "show this help"};

std::vector<std::string_view> Split(std::string_view names) {
  std::vector<std::string_view> parts;
  while (!names.empty()) {
    const size_t comma = names.find(',');
    parts.push_back(names.substr(0, comma));
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
  return parts;
}

std::vector<const Flag*> AllFlags(const Syntax& syntax) {
  std::vector<const Flag*> flags = {&kHelpFlag};
  for (const FlagGroup& group : syntax.groups) {
    for (const Flag& flag : group.flags) flags.push_back(&flag);
  }
  return flags;
}

// "--per_device_train_batch_size=4" -> "--per-device-train-batch-size=4"
std::string WithDashes(std::string word) {
  if (!word.starts_with("--")) return word;
  const auto end =
      word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size()));
  std::replace(word.begin(), end, '_', '-');
  return word;
}

// "A B" takes two.
size_t PositionalCount(const Syntax& syntax) {
  if (syntax.positional.empty()) return 0;
  return 1 + static_cast<size_t>(std::ranges::count(syntax.positional, ' '));
}

Error UnknownArgument(const Syntax& syntax, const std::string& word) {
  if (word == "True" || word == "true" || word == "False" || word == "false") {
    return Error::BadInput(
        Format("unexpected argument \"{}\": a flag takes it behind '=': --bf16={}", word, word));
  }
  if (!word.starts_with('-')) {
    return Error::BadInput(Format("unexpected argument \"{}\"{}: see headroom {} --help", word,
                                  syntax.positional.empty() ? ""
                                  : PositionalCount(syntax) == 1
                                      ? Format(" (one {} is taken)", syntax.positional)
                                      : Format(" (taken are {})", syntax.positional),
                                  syntax.command));
  }
  std::vector<std::string_view> known;
  for (const Flag* flag : AllFlags(syntax)) {
    for (const std::string_view name : Split(flag->names)) known.push_back(name);
  }
  const std::string name = word.substr(0, word.find('='));
  const std::string near = DidYouMean(name, known);
  return Error::BadInput(
      Format("unknown flag {}{}", name,
             near.empty() ? Format(": see headroom {} --help", syntax.command) : near));
}

Error MissingValue(const Flag& flag, std::string_view name) {
  return Error::BadInput(Format("{} needs a value: write {} {}", name, name, flag.value));
}

Error GivenTwice(std::string_view name) {
  return Error::BadInput(Format("{} is given more than once: keep one", name));
}

// One flag of the syntax while CLI11 fills it in.
struct Slot {
  const Flag* flag;
  std::vector<std::string> values;
  CLI::Option* option = nullptr;
};

void AddTo(CLI::App& app, Slot& slot) {
  const std::string names(slot.flag->names);
  if (slot.flag->takes != Takes::kValue) {
    slot.option = app.add_flag(names, slot.values);
    return;
  }
  // A missing value is ours to explain, so CLI11 is told that none is needed.
  slot.option = app.add_option(names, slot.values)->expected(0, 1);
  slot.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

// The values of a flag that was given: "" for a flag alone, nullopt for one switched off ("=false",
// as Trainer scripts write it).
Result<std::optional<std::string>> ValueOf(const Slot& slot, std::string_view name) {
  std::string value = slot.values.empty() ? "" : slot.values.front();
  if (slot.flag->takes == Takes::kValue) {
    if (value.empty()) return MissingValue(*slot.flag, name);
    return std::optional(std::move(value));
  }
  if (value == "true" || value == "True") return std::optional(std::string());
  if (slot.flag->takes == Takes::kOptionalValue) return std::optional(std::move(value));
  if (value == "false" || value == "False") return std::optional<std::string>();
  return Error::BadInput(Format("{}={}: takes no value: write {}", name, value, name));
}

// "--flag VALUE MODEL", where the flag's value is optional and only one of the two words can be
// MODEL: the word behind the flag is its value.
void TakeSurplus(const Syntax& syntax, std::span<const std::string> words, Slot& slot,
                 std::vector<std::string>& remaining) {
  const bool alone = slot.flag->takes == Takes::kOptionalValue && slot.option->count() == 1;
  if (!alone || remaining.size() <= PositionalCount(syntax)) return;
  const std::vector<std::string_view> names = Split(slot.flag->names);
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (std::ranges::find(names, WithDashes(words[i])) == names.end()) continue;
    const auto found = std::ranges::find(remaining, words[i + 1]);
    if (found == remaining.end() || found->starts_with('-')) return;
    slot.values = {*found};
    remaining.erase(found);
    return;
  }
}

}  // namespace

std::optional<std::string> Arguments::Value(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

Result<Arguments> ParseArguments(const Syntax& syntax, std::span<const std::string> words) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::vector<Slot> slots;
  for (const Flag* flag : AllFlags(syntax)) slots.push_back({flag, {}, nullptr});
  for (Slot& slot : slots) AddTo(app, slot);
  // CLI11 takes its words from the back.
  std::vector<std::string> reversed;
  for (const std::string& word : words) reversed.push_back(WithDashes(word));
  std::reverse(reversed.begin(), reversed.end());
  try {
    app.parse(reversed);
  } catch (const CLI::Error& failure) {
    return Error::BadInput(failure.what());
  }

  Arguments arguments;
  std::vector<std::string> remaining = app.remaining();
  for (Slot& slot : slots) TakeSurplus(syntax, words, slot, remaining);
  for (const Slot& slot : slots) {
    if (slot.option->count() == 0) continue;
    const std::string name(Split(slot.flag->names).front());
    if (slot.option->count() > 1 && slot.flag != &kHelpFlag) return GivenTwice(name);
    HEADROOM_ASSIGN_OR_RETURN(const std::optional<std::string> value, ValueOf(slot, name));
    if (value) arguments.values_[name] = *value;
  }
  if (arguments.wants_help()) return arguments;
  for (const std::string& word : remaining) {
    const bool taken = arguments.positionals_.size() < PositionalCount(syntax);
    if (!taken || (word.starts_with('-') && word != "-")) return UnknownArgument(syntax, word);
    arguments.positionals_.push_back(word);
  }
  return arguments;
}

std::string HelpText(const Syntax& syntax) {
  const TextStyle style{.width = kHelpWidth};
  std::string out = Format("Usage: headroom {}{}{} [flags]", syntax.command,
                           syntax.positional.empty() ? "" : " ", syntax.positional);
  if (!syntax.tail.empty()) out += Format(" [{}]", syntax.tail);
  out += "\n\n";
  out += Paragraph(style, "", syntax.summary);
  if (!syntax.positional.empty()) {
    out += '\n' + Paragraph(style, PadRight(Format("  {}", syntax.positional), kHelpColumn),
                            syntax.positional_help);
  }
  const auto add = [&](const Flag& flag) {
    std::string lead = "  ";
    for (const std::string_view name : Split(flag.names)) {
      lead += (lead.size() > 2 ? ", " : "") + std::string(name);
    }
    if (flag.takes == Takes::kValue) lead += Format(" {}", flag.value);
    if (flag.takes == Takes::kOptionalValue) lead += Format("[={}]", flag.value);
    // A flag with long names has its explanation on the line below.
    if (static_cast<int>(lead.size()) >= kHelpColumn) {
      out += lead + '\n';
      lead.clear();
    }
    out += Paragraph(style, PadRight(lead, kHelpColumn), flag.help);
  };
  for (const FlagGroup& group : syntax.groups) {
    out += Format("\n{}:\n", group.title);
    for (const Flag& flag : group.flags) add(flag);
  }
  return out + Format("\nExamples:\n{}", syntax.examples);
}

}  // namespace headroom::cli
