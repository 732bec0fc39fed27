// SPDX-License-Identifier: Apache-2.0
//
// Reading and writing whole files, with limits and one-line errors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom {

// The file's content. Fails when it does not exist, is a folder, cannot be read or holds more than
// `limit`; the message names the path.
Result<std::string> ReadFile(const std::filesystem::path& path, Bytes limit = MiB(64));

// Writes `content` beside `path` and renames it into place, so that an interrupted run leaves the
// old file or the new one and never half of it.
Status WriteFile(const std::filesystem::path& path, std::string_view content);

}  // namespace headroom
