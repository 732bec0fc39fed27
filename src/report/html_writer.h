// SPDX-License-Identifier: Apache-2.0
//
// Pieces of HTML: escaped text and tables. Everything a user's file can name goes through
// EscapeHtml.
#pragma once

#include <string>
#include <string_view>

#include "report/html_report.h"

namespace headroom {

// Text that stands for itself between tags and in quoted attributes. Bytes that are not UTF-8 and
// control characters become U+FFFD.
std::string EscapeHtml(std::string_view text);

// A table under its heading; `id` is unique on the page. Numeric cells carry their value in data-v,
// by which the page sorts them.
std::string TableHtml(const PageTable& table, std::string_view id);

// <span class="swatch c-weights"></span>: the component's colour; says nothing to a screen reader.
std::string SwatchHtml(Component component);

}  // namespace headroom
