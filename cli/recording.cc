// SPDX-License-Identifier: Apache-2.0
#include "recording.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "observe/byte_window.h"

namespace headroom::cli {
namespace {

using observe::ByteSource;
using observe::MappedFile;

constexpr size_t kHead = 512;
// A log's failure stands at its end; a ledger of this size has some ten million events.
constexpr size_t kLongestText = size_t{512} << 20;
constexpr size_t kLongestLog = size_t{64} << 20;

// Recognised leniently: what looks like neither text nor JSON goes to the snapshot reader, which
// says what it is.
Recording::Kind KindOf(std::string_view head) {
  using Kind = Recording::Kind;
  if (head.find("\"headroom.ledger\"") != std::string_view::npos) return Kind::kLedger;
  if (head.find("\"headroom.watch\"") != std::string_view::npos) return Kind::kWatch;
  if (head.starts_with("\x1f\x8b") || head.starts_with('\x80') || head.starts_with("PK\x03\x04") ||
      head.find('\0') != std::string_view::npos) {
    return Kind::kSnapshot;
  }
  // Pickles of protocols 0 and 1 begin with an empty or a marked list or dict.
  if (head.starts_with("(d") || head.starts_with("(l") || head.starts_with("]q") ||
      head.starts_with("}q") || head.starts_with("](")) {
    return Kind::kSnapshot;
  }
  const size_t first = head.find_first_not_of(" \t\r\n");
  const std::string_view rest = first == std::string_view::npos ? "" : head.substr(first);
  const bool page = rest.starts_with("<!") || rest.starts_with("<html") ||
                    rest.starts_with("<script") || rest.starts_with("<head");
  return page ? Kind::kSnapshot : Kind::kText;
}

Status Refuse(const Recording& recording) {
  if (recording.text.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  return Error::BadInput(Format("{}: is empty", recording.name));
}

// What cannot be mapped: a pipe, standard input.
Result<Recording> FromStream(int descriptor, std::string name) {
  Recording recording;
  recording.name = std::move(name);
  const std::unique_ptr<ByteSource> source = observe::DescriptorSource(descriptor);
  std::string& text = recording.text;
  const auto read_more = [&](size_t most) -> Result<size_t> {
    const size_t before = text.size();
    text.resize(before + most);
    Result<size_t> got = source->Read(text.data() + before, most);
    text.resize(before + (got.ok() ? *got : 0));
    return got.ok() ? got : got.error().In(recording.name);
  };
  // A pipe may hand out its first bytes in several pieces.
  for (size_t got = 1; got > 0 && text.size() < kHead;) {
    HEADROOM_ASSIGN_OR_RETURN(got, read_more(kHead - text.size()));
  }
  recording.kind = KindOf(text);
  if (recording.kind == Recording::Kind::kSnapshot) {
    HEADROOM_ASSIGN_OR_RETURN(
        recording.snapshot,
        observe::ReadSnapshot(observe::DescriptorSource(descriptor, std::move(text)),
                              recording.name));
    text.clear();
    return recording;
  }
  const bool whole = recording.kind != Recording::Kind::kText;
  const size_t longest = whole ? kLongestText : 2 * kLongestLog;
  for (size_t got = 1; got > 0;) {
    HEADROOM_ASSIGN_OR_RETURN(got, read_more(size_t{1} << 20));
    if (text.size() <= longest) continue;
    if (whole) {
      return Error::BadInput(
          Format("{}: a ledger or recording of more than 512 MiB", recording.name));
    }
    text.erase(0, text.size() - kLongestLog);
  }
  HEADROOM_RETURN_IF_ERROR(Refuse(recording));
  return recording;
}

}  // namespace

Result<Recording> OpenRecording(const std::string& path) {
  if (path == "-") return FromStream(STDIN_FILENO, "standard input");
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status)) {
    return Error::BadInput(Format("{}: no such file", path));
  }
  if (std::filesystem::is_directory(status)) {
    return Error::BadInput(Format("{}: is a folder, not a file", path));
  }
  if (!std::filesystem::is_regular_file(status)) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
      return Error::BadInput(Format("{}: cannot be opened: {}", path, std::strerror(errno)));
    }
    Result<Recording> recording = FromStream(descriptor, path);
    ::close(descriptor);
    return recording;
  }
  Result<MappedFile> file = MappedFile::Open(path);
  if (!file.ok()) return file.error().In(path);
  const std::string_view bytes = file->bytes();
  Recording recording;
  recording.name = path;
  recording.kind = KindOf(bytes.substr(0, kHead));
  if (recording.kind == Recording::Kind::kSnapshot) {
    HEADROOM_ASSIGN_OR_RETURN(recording.snapshot, observe::ParseSnapshot(bytes, path));
    return recording;
  }
  if (recording.kind != Recording::Kind::kText) {
    if (bytes.size() > kLongestText) {
      return Error::BadInput(Format("{}: a ledger or recording of more than 512 MiB", path));
    }
    recording.text = bytes;
  } else {
    recording.text = bytes.substr(bytes.size() - std::min(bytes.size(), kLongestLog));
  }
  HEADROOM_RETURN_IF_ERROR(Refuse(recording));
  return recording;
}

}  // namespace headroom::cli
