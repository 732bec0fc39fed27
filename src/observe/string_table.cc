// SPDX-License-Identifier: Apache-2.0
#include "observe/string_table.h"

#include <cstring>

#include "base/check.h"

namespace headroom::observe {
namespace {

// Not against attackers (the table's size is bounded), only fast: eight bytes a step.
uint32_t Hash(std::string_view text) {
  uint64_t hash = text.size() * 0x9e3779b97f4a7c15ULL;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  uint64_t word = 0;
  std::memcpy(&word, at, left);
  hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
  return static_cast<uint32_t>(hash >> 32);
}

// Length of the valid UTF-8 sequence at the front of `text`, or 0.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i) { return i < text.size() && (byte(i) & 0xc0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first < 0xe0) return continues(1) ? 2 : 0;
  if (first >= 0xe0 && first < 0xf0) {
    if (!continues(1) || !continues(2)) return 0;
    const bool overlong = first == 0xe0 && byte(1) < 0xa0;
    const bool surrogate = first == 0xed && byte(1) >= 0xa0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xf0 && first < 0xf5) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    const bool overlong = first == 0xf0 && byte(1) < 0x90;
    const bool beyond = first == 0xf4 && byte(1) >= 0x90;
    return overlong || beyond ? 0 : 4;
  }
  return 0;
}

bool IsControl(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return (byte < 0x20 && c != '\t' && c != '\n') || byte == 0x7f;
}

// C1 controls (U+0080..U+009F) steer terminals too; in UTF-8 they are C2 80..9F.
bool IsControlPair(std::string_view text) {
  return static_cast<uint8_t>(text[0]) == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;
}

bool IsPlain(std::string_view text) {
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= 0x80 || IsControl(c)) return false;
  }
  return true;
}

}  // namespace

std::string MakePrintable(std::string_view text) {
  if (IsPlain(text)) return std::string(text);
  std::string printable;
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t length = SequenceLength(rest);
    const bool bad = length == 0 || IsControl(text[at]) || (length == 2 && IsControlPair(rest));
    printable += bad ? "\xef\xbf\xbd" : rest.substr(0, length);
    at += length == 0 ? 1 : length;
  }
  return printable;
}

StringTable::StringTable() : slots_(1024, 0) { Intern(""); }

StringId StringTable::Intern(std::string_view text) {
  const uint32_t hash = Hash(text);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slots_[slot] - 1];
    if (entry.hash != hash || entry.raw_size != text.size()) continue;
    // The raw text is the printable one where both have the same length, and follows it elsewhere.
    const size_t raw = entry.offset + (entry.size == entry.raw_size ? 0 : entry.size);
    if (std::memcmp(arena_.data() + raw, text.data(), text.size()) == 0) {
      return StringId(slots_[slot] - 1);
    }
  }
  return Add(text, hash);
}

StringId StringTable::Add(std::string_view text, uint32_t hash) {
  HEADROOM_CHECK(!full(), "string table is full");
  if (entries_.size() * 2 >= slots_.size()) Rehash();
  const std::string printable = MakePrintable(text);
  const auto id = StringId(entries_.size());
  entries_.push_back({static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(printable.size()),
                      hash, static_cast<uint32_t>(text.size())});
  arena_ += printable;
  if (printable.size() != text.size()) arena_ += text;
  const size_t mask = slots_.size() - 1;
  size_t slot = hash & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = static_cast<uint32_t>(id) + 1;
  return id;
}

void StringTable::Rehash() {
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    size_t slot = entries_[i].hash & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(i) + 1;
  }
}

}  // namespace headroom::observe
