// SPDX-License-Identifier: Apache-2.0
//
// Format: fmt::format, compiled once.
//
// fmt is header-only here, and a file that calls fmt::format itself compiles all of fmt again: it
// takes twice as long.
//
//   Format("{} of {} rows, {:.1f} %", done, rows, 100.0 * share)
#pragma once

#include <fmt/core.h>

#include <string>

namespace headroom {

// `format` is checked against the types of `arguments` when this is compiled.
template <typename... T>
std::string Format(fmt::format_string<T...> format, T&&... arguments);

// The part that does not depend on the types.
std::string FormatArguments(fmt::string_view format, fmt::format_args arguments);

template <typename... T>
std::string Format(fmt::format_string<T...> format, T&&... arguments) {
  return FormatArguments(format, fmt::make_format_args(arguments...));
}

}  // namespace headroom
