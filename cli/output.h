// SPDX-License-Identifier: Apache-2.0
//
// Everything that leaves the program: standard output, the one line of an error, and what the
// terminal can show.
#pragma once

#include <string>
#include <string_view>

#include "arguments.h"
#include "base/result.h"
#include "exit_code.h"
#include "report/text.h"

namespace headroom::cli {

// The flag every printing subcommand takes.
inline constexpr Flag kColorFlag = {"--color", Takes::kValue, "WHEN",
                                    "auto (on a terminal), always or never"};

// What standard output can show, given --color. Colours on a terminal (unless NO_COLOR is set or
// TERM is dumb), Unicode when the locale is UTF-8, both only there unless --color always.
Result<TextStyle> StyleOf(const Arguments& arguments);
// The same of another descriptor, STDERR_FILENO say, and for text that fits fewer columns than the
// 80 that most tables take. COLUMNS comes before what a terminal says of its width.
Result<TextStyle> StyleOf(const Arguments& arguments, int descriptor, int narrowest);
inline constexpr int kTableColumns = 80;
inline constexpr int kFewestColumns = 40;

// Writes `text` to the descriptor. False when its reader has gone; any other failure is an error.
Result<bool> Write(int descriptor, std::string_view text);

// Writes `text` to standard output and returns `code`. A closed pipe ends the output quietly; any
// other failure is told on stderr and returns kInternal.
ExitCode Print(std::string_view text, ExitCode code = ExitCode::kOk);

// What a page says it was made by: "headroom 0.1.0".
std::string Generator();

// One line on stderr: "headroom plan: MESSAGE".
ExitCode Fail(std::string_view command, const Error& error);
void Warn(std::string_view command, std::string_view message);

}  // namespace headroom::cli
