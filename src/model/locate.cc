// SPDX-License-Identifier: Apache-2.0
#include "model/locate.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "model/json_text.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestConfig = MiB(8);

// Empty when unset; an empty variable counts as unset, as the XDG specification has it.
std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path ExpandUser(std::string_view path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::string home = Environment("HOME");
  if (home.empty()) return path;
  return fs::path(home + std::string(path.substr(1)));
}

bool IsPathLike(std::string_view model) {
  return model.starts_with('/') || model.starts_with("./") || model.starts_with("../") ||
         model.starts_with("~/") || model == "." || model == ".." || model == "~" ||
         model.ends_with('/') || model.ends_with(".json") || std::ranges::count(model, '/') > 1;
}

// Letters, digits, '-', '_', '.' with one '/' at most: huggingface_hub's validate_repo_id. What is
// none of it must not become part of a path.
bool IsRepositoryName(std::string_view model) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.' || c == '/';
  };
  return model.size() <= 96 && std::ranges::all_of(model, allowed) &&
         std::ranges::count(model, '/') <= 1 && model.find("..") == std::string_view::npos;
}

Result<std::optional<LocatedModel>> ReadConfigFile(const fs::path& path, std::string name) {
  HEADROOM_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kLargestConfig));
  return std::optional(LocatedModel{std::move(name), std::move(text), path.string()});
}

// "models/bert/config.json" and "models/bert/" are both the model "bert".
std::string NameOfFolder(const fs::path& folder) {
  std::error_code ignored;
  const fs::path absolute = fs::absolute(folder, ignored).lexically_normal();
  const fs::path last =
      absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename();
  return last.string();
}

Result<std::optional<LocatedModel>> ReadPath(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    const bool standard_name = path.filename() == "config.json";
    return ReadConfigFile(
        path, standard_name
                  ? NameOfFolder(path.parent_path().empty() ? fs::path(".") : path.parent_path())
                  : path.stem().string());
  }
  const fs::path config = path / "config.json";
  if (fs::exists(config, ignored)) return ReadConfigFile(config, NameOfFolder(path));
  if (fs::exists(path / "adapter_config.json", ignored)) {
    return Error::BadInput(
        Format("{}: holds an adapter (adapter_config.json) and no config.json: give the base model",
               path.string()));
  }
  return Error::BadInput(Format("{}: a folder without config.json", path.string()));
}

// The commit that refs/main names, when its snapshot is there.
std::optional<fs::path> MainSnapshot(const fs::path& repository) {
  Result<std::string> commit = ReadFile(repository / "refs" / "main", KiB(4));
  if (!commit.ok()) return std::nullopt;
  const size_t end = commit->find_first_of(" \r\n\t");
  if (end != std::string::npos) commit->resize(end);
  const bool is_hash = !commit->empty() && std::ranges::all_of(*commit, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
  std::error_code ignored;
  const fs::path config = repository / "snapshots" / *commit / "config.json";
  if (!is_hash || !fs::exists(config, ignored)) return std::nullopt;
  return config;
}

// The youngest snapshot with a config.json, for caches filled at a pinned revision. Ties fall to
// the greater name, so that the choice does not depend on the order of the file system.
std::optional<fs::path> NewestSnapshot(const fs::path& repository) {
  std::error_code failure;
  std::optional<std::pair<fs::file_time_type, fs::path>> newest;
  fs::directory_iterator snapshot(repository / "snapshots", failure);
  while (!failure && snapshot != fs::directory_iterator()) {
    const fs::path config = snapshot->path() / "config.json";
    std::error_code ignored;
    if (fs::exists(config, ignored)) {
      std::pair candidate(fs::last_write_time(snapshot->path(), ignored), config);
      if (!newest || candidate > *newest) newest = std::move(candidate);
    }
    snapshot.increment(failure);
  }
  if (!newest) return std::nullopt;
  return newest->second;
}

Result<std::optional<LocatedModel>> FindInCache(std::string_view model) {
  const fs::path cache = HuggingFaceCache();
  if (cache.empty() || !IsRepositoryName(model) || model.empty())
    return std::optional<LocatedModel>();
  std::string folder = "models--";
  for (const char c : model) folder += c == '/' ? "--" : std::string(1, c);
  const fs::path repository = cache / folder;
  std::optional<fs::path> config = MainSnapshot(repository);
  if (!config) config = NewestSnapshot(repository);
  if (!config) return std::optional<LocatedModel>();
  return ReadConfigFile(*config, std::string(model));
}

}  // namespace

std::filesystem::path UserCache() {
  if (std::string cache = Environment("XDG_CACHE_HOME"); !cache.empty()) return ExpandUser(cache);
  const std::string home = Environment("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache";
}

std::filesystem::path HuggingFaceCache() {
  if (std::string cache = Environment("HF_HUB_CACHE"); !cache.empty()) return ExpandUser(cache);
  if (std::string home = Environment("HF_HOME"); !home.empty()) return ExpandUser(home) / "hub";
  const fs::path cache = UserCache();
  return cache.empty() ? cache : cache / "huggingface" / "hub";
}

Result<std::optional<LocatedModel>> LocateModel(std::string_view model) {
  if (model.empty()) return Error::BadInput("no model given: a config.json, a folder or a name");
  if (model.find('\0') != std::string_view::npos || model.size() > 4096) {
    return Error::BadInput(Format("{}: neither a path nor a model's name", Quoted(model)));
  }
  const fs::path path = ExpandUser(model);
  std::error_code ignored;
  const bool path_like = IsPathLike(model);
  // A folder that merely shares a model's name ("gpt2" with outputs in it) does not hide the model.
  const bool is_model_folder = fs::exists(path / "config.json", ignored);
  const bool is_file = fs::exists(path, ignored) && !fs::is_directory(path, ignored);
  if (path_like && !fs::exists(path, ignored)) {
    return Error::BadInput(Format("{}: no such file or folder", Quoted(path.string())));
  }
  if (path_like || is_model_folder || is_file) return ReadPath(path);
  return FindInCache(model);
}

}  // namespace headroom
