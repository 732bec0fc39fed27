// SPDX-License-Identifier: Apache-2.0
//
// Command-line syntax as data: a subcommand says which flags it takes, and gets back their values
// as texts and its help.
//
// Flags may be written with '-' or '_' (--per_device_train_batch_size, as Trainer scripts have it),
// their values behind a space or '='. A flag that is not known is an error naming the nearest one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headroom::cli {

enum class Takes : uint8_t {
  kNothing,
  kValue,
  kOptionalValue,  // only behind '='
};

struct Flag {
  std::string_view names;  // "--batch,--per-device-train-batch-size"; the first is its name
  Takes takes = Takes::kNothing;
  std::string_view value;  // what the help calls the value: "N"
  std::string_view help;
};

struct FlagGroup {
  std::string_view title;
  std::span<const Flag> flags;
};

struct Syntax {
  std::string_view command;     // "plan"
  std::string_view summary;     // one sentence
  std::string_view positional;  // "MODEL", "A B"; empty when it takes none
  std::string_view positional_help;
  std::string_view tail{};  // what may follow the flags and is not ours: "-- COMMAND ..."
  std::span<const FlagGroup> groups;
  std::string_view examples;  // lines, each indented by two
};

class Arguments {
 public:
  // Whether the flag `name` ("--json") was given.
  bool Has(std::string_view name) const { return values_.contains(name); }
  // Its value; "" for a flag given without one, nullopt when it was not given.
  std::optional<std::string> Value(std::string_view name) const;
  // The first argument that is no flag; empty when not given.
  const std::string& positional() const { return positional(0); }
  const std::string& positional(size_t at) const {
    static const std::string kNone;
    return at < positionals_.size() ? positionals_[at] : kNone;
  }
  bool wants_help() const { return Has("--help"); }

 private:
  friend Result<Arguments> ParseArguments(const Syntax&, std::span<const std::string>);
  std::map<std::string, std::string, std::less<>> values_;
  std::vector<std::string> positionals_;
};

// Reads what follows the subcommand's name. Fails on unknown flags, missing or doubled values and
// superfluous arguments. `--help` is known everywhere.
Result<Arguments> ParseArguments(const Syntax& syntax, std::span<const std::string> words);

// The subcommand's help page, at most 80 columns wide.
std::string HelpText(const Syntax& syntax);

}  // namespace headroom::cli
