// SPDX-License-Identifier: Apache-2.0
//
// Bytes: a count of bytes that cannot be mixed up with a count of anything else.
//
// Text form: sizes print in binary units (KiB, MiB, GiB); JSON and files hold plain bytes. A user
// writes "12GiB", "12 GB" (10^9), "512MiB" or a plain number of bytes.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom {

class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(int64_t count) : count_(count) {}

  constexpr int64_t count() const { return count_; }
  constexpr double mib() const { return static_cast<double>(count_) / (1 << 20); }
  constexpr double gib() const { return static_cast<double>(count_) / (1 << 30); }

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes operator+(Bytes other) const { return Bytes(count_ + other.count_); }
  constexpr Bytes operator-(Bytes other) const { return Bytes(count_ - other.count_); }
  constexpr Bytes operator-() const { return Bytes(-count_); }
  constexpr Bytes operator*(int64_t times) const { return Bytes(count_ * times); }
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count_ -= other.count_;
    return *this;
  }

 private:
  int64_t count_ = 0;
};

constexpr Bytes KiB(int64_t n) { return Bytes(n << 10); }
constexpr Bytes MiB(int64_t n) { return Bytes(n << 20); }
constexpr Bytes GiB(int64_t n) { return Bytes(n << 30); }

// The smallest multiple of `unit` that is at least `size`. REQUIRES: unit > 0, size >= 0.
constexpr Bytes RoundUp(Bytes size, Bytes unit) {
  return Bytes((size.count() + unit.count() - 1) / unit.count() * unit.count());
}

// "6,578.9 MiB" with thousands separated; sizes under one MiB print in KiB or B.
std::string FormatMiB(Bytes size);

// The unit that suits the size: "512 B", "1.5 KiB", "125.0 MiB", "12.83 GiB".
std::string FormatBytes(Bytes size);

// Reads "12GiB", "12 GB", "1.5g", "600MiB", "4096". Units are B, K/KiB/KB, M/MiB/MB, G/GiB/GB,
// T/TiB/TB, case-insensitive; a bare letter is binary, as is the "iB" form, and "KB", "MB", "GB",
// "TB" are powers of 1000. Fails on anything else, on negative sizes and on more than 2^62 bytes.
Result<Bytes> ParseBytes(std::string_view text);

}  // namespace headroom
