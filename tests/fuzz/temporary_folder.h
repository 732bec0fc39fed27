// SPDX-License-Identifier: Apache-2.0
//
// For readers that open files themselves: a folder of their own, gone when the program ends.
//
//   static const TemporaryFolder folder("vocabulary");
//   WriteFile(folder.path() / "vocab.txt", text);
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "base/check.h"

namespace headroom {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name) {
    std::string path =
        (std::filesystem::temp_directory_path() / ("headroom_" + name + "_XXXXXX")).string();
    HEADROOM_CHECK(::mkdtemp(path.data()) != nullptr, "no folder for temporary files");
    path_ = path;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace headroom
