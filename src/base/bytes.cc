// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

#include "base/format.h"

namespace headroom {
namespace {

// "1234567.8" -> "1,234,567.8". REQUIRES: `digits` is a plain decimal number, maybe negative.
std::string WithThousands(std::string digits) {
  size_t end = digits.find('.');
  if (end == std::string::npos) end = digits.size();
  const size_t start = digits.starts_with('-') ? 1 : 0;
  for (size_t at = end; at > start + 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

std::string FormatMiB(Bytes size) {
  const int64_t magnitude = std::abs(size.count());
  if (magnitude < (1 << 10)) return Format("{} B", size.count());
  if (magnitude < (1 << 20))
    return Format("{:.1f} KiB", static_cast<double>(size.count()) / 1024.0);
  return WithThousands(Format("{:.1f}", size.mib())) + " MiB";
}

std::string FormatBytes(Bytes size) {
  if (std::abs(size.count()) < (int64_t{1} << 30)) return FormatMiB(size);
  return WithThousands(Format("{:.2f}", size.gib())) + " GiB";
}

Result<Bytes> ParseBytes(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return Error::BadInput(
        Format("\"{}\" is not a memory size ({}): write it like 12GiB or 800MiB", text, why));
  };
  std::string_view rest = text;
  while (!rest.empty() && std::isspace(static_cast<unsigned char>(rest.front())))
    rest.remove_prefix(1);
  double number = 0;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  if (failure != std::errc()) return bad("no number in front");
  if (!std::isfinite(number) || number < 0) return bad("the number is negative or not finite");

  std::string unit;
  for (const char* at = end; at != rest.data() + rest.size(); ++at) {
    if (!std::isspace(static_cast<unsigned char>(*at))) {
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
    }
  }
  double scale = 1;
  if (!unit.empty() && unit != "b") {
    const size_t power = std::string_view("kmgt").find(unit[0]);
    if (power == std::string_view::npos) return bad("unknown unit");
    const std::string tail = unit.substr(1);
    if (tail.empty() || tail == "ib") {
      scale = std::pow(1024.0, static_cast<double>(power) + 1);
    } else if (tail == "b") {
      scale = std::pow(1000.0, static_cast<double>(power) + 1);
    } else {
      return bad("unknown unit");
    }
  }
  const double bytes = number * scale;
  if (bytes > std::ldexp(1.0, 62)) return bad("larger than any memory");
  return Bytes(static_cast<int64_t>(std::llround(bytes)));
}

}  // namespace headroom
