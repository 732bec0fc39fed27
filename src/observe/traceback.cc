// SPDX-License-Identifier: Apache-2.0
#include "observe/traceback.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "observe/string_table.h"

namespace headroom::observe {
namespace {

constexpr size_t kLongestCode = 400;

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<int> LeadingNumber(std::string_view text) {
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end == text.data()) return std::nullopt;
  return number;
}

// "main" of "main(args)", "Model.forward(self, x)".
std::string FunctionName(std::string_view text) {
  std::string_view name = Trim(text.substr(0, text.find('(')));
  name = name.substr(name.find_last_of('.') + 1);
  return MakePrintable(name.substr(0, kLongestCode));
}

// File "PATH", line N, in NAME
std::optional<TracebackFrame> PlainFrame(std::string_view line) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  const size_t file = line.find(kFile);
  if (file == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(file + kFile.size());
  const size_t number = rest.find(kLine);
  if (number == std::string_view::npos) return std::nullopt;
  const std::optional<int> at = LeadingNumber(rest.substr(number + kLine.size()));
  if (!at) return std::nullopt;
  TracebackFrame frame;
  frame.file = MakePrintable(rest.substr(0, number));
  frame.line = *at;
  constexpr std::string_view kIn = ", in ";
  const size_t in = rest.find(kIn, number + kLine.size());
  if (in != std::string_view::npos) frame.function = FunctionName(rest.substr(in + kIn.size()));
  return frame;
}

// File PATH:N, in NAME(…)
std::optional<TracebackFrame> NotebookFrame(std::string_view line) {
  line = Trim(line);
  constexpr std::string_view kFile = "File ";
  if (!line.starts_with(kFile)) return std::nullopt;
  const std::string_view rest = line.substr(kFile.size());
  const size_t in = rest.find(", in ");
  if (in == std::string_view::npos) return std::nullopt;
  const size_t colon = rest.substr(0, in).rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::optional<int> at = LeadingNumber(rest.substr(colon + 1));
  if (!at) return std::nullopt;
  return TracebackFrame{MakePrintable(rest.substr(0, colon)), *at,
                        FunctionName(rest.substr(in + 5)), ""};
}

// PATH.py in NAME(…): the line's number follows behind an arrow.
std::optional<TracebackFrame> OldNotebookFrame(std::string_view line) {
  line = Trim(line);
  const size_t in = line.find(" in ");
  if (in == std::string_view::npos || line.find('(', in) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view file = line.substr(0, in);
  const bool is_file = file.ends_with(".py") || file.starts_with("<ipython-input");
  if (!is_file || file.find(' ') != std::string_view::npos) return std::nullopt;
  return TracebackFrame{MakePrintable(file), 0, FunctionName(line.substr(in + 4)), ""};
}

// "---> 88     loss.backward()"
bool ArrowLine(std::string_view line, TracebackFrame* frame) {
  line = Trim(line);
  // The arrow gives way to long numbers: "---> 88", "-> 1859".
  const size_t arrow = line.find_first_not_of('-');
  if (arrow == 0 || arrow == std::string_view::npos || line[arrow] != '>') return false;
  const std::string_view rest = Trim(line.substr(arrow + 1));
  const std::optional<int> at = LeadingNumber(rest);
  if (!at) return false;
  frame->line = *at;
  const size_t code = rest.find(' ');
  if (code != std::string_view::npos) {
    frame->code = MakePrintable(Trim(rest.substr(code)).substr(0, kLongestCode));
  }
  return true;
}

// Drops "[rank0]: " and "[default0]:" from the front.
std::string_view WithoutRank(std::string_view line) {
  const std::string_view trimmed = Trim(line);
  if (!trimmed.starts_with('[')) return line;
  const size_t end = trimmed.find("]:");
  return end == std::string_view::npos || end > 40 ? line : trimmed.substr(end + 2);
}

bool IsMarkers(std::string_view line) {
  return line.find_first_not_of("^~ \t\r") == std::string_view::npos;
}

}  // namespace

std::vector<TracebackFrame> LastTraceback(std::string_view text) {
  std::vector<TracebackFrame> frames;
  bool expects_code = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = WithoutRank(text.substr(at, end - at));
    at = end + 1;
    // A new traceback replaces the one before: the last is the one that reached the top.
    if (line.find("Traceback (most recent call last)") != std::string_view::npos) {
      frames.clear();
      expects_code = false;
      continue;
    }
    std::optional<TracebackFrame> frame = PlainFrame(line);
    const bool plain = frame.has_value();
    if (!frame) frame = NotebookFrame(line);
    if (!frame) frame = OldNotebookFrame(line);
    if (frame) {
      frames.push_back(std::move(*frame));
      if (frames.size() > kMostFrames) frames.erase(frames.begin());
      expects_code = plain;
    } else if (!frames.empty() && expects_code && !IsMarkers(line)) {
      frames.back().code = MakePrintable(Trim(line).substr(0, kLongestCode));
      expects_code = false;
    } else if (!frames.empty()) {
      ArrowLine(line, &frames.back());
    }
  }
  return frames;
}

}  // namespace headroom::observe
