// SPDX-License-Identifier: Apache-2.0
#include "engine/cuda/algorithm_store.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "model/json_text.h"

namespace headroom::engine::cuda {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kSchema = "headroom.gemm_algorithms.1";
constexpr std::string_view kDigits = "0123456789abcdef";
// A model has some dozens of shapes, of which each takes 300 bytes.
constexpr Bytes kLargest = MiB(16);

std::string Hexadecimal(const std::array<uint8_t, 64>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

std::optional<std::array<uint8_t, 64>> FromHexadecimal(std::string_view text) {
  std::array<uint8_t, 64> bytes{};
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return std::nullopt;
    bytes[i / 2] = static_cast<uint8_t>(16 * bytes[i / 2] + digit);
  }
  return bytes;
}

// Messages and file names show it as it is.
bool IsPlain(std::string_view text) {
  constexpr size_t kLongest = 100;
  if (text.empty() || text.size() > kLongest) return false;
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

// A whole number that versions and shapes have, or -1.
int64_t CountIn(const Json& value) {
  constexpr int64_t kMost = int64_t{1} << 53;
  return value.is_number_unsigned() && value <= kMost ? value.get<int64_t>() : -1;
}

std::optional<AlgorithmIdentity> IdentityIn(const Json& json) {
  AlgorithmIdentity identity{.gpu = json.at("gpu").get<std::string>(),
                             .compute_capability = json.at("compute_capability").get<std::string>(),
                             .driver = CountIn(json.at("driver")),
                             .cublaslt = CountIn(json.at("cublaslt"))};
  const bool good = IsPlain(identity.gpu) && IsPlain(identity.compute_capability) &&
                    identity.driver >= 0 && identity.cublaslt >= 0;
  return good ? std::optional(std::move(identity)) : std::nullopt;
}

bool AddFrom(const Json& entry, AlgorithmStore& store) {
  const Json& values = entry.at("shape");
  GemmShape shape{};
  if (!values.is_array() || values.size() != shape.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    shape[i] = CountIn(values[i]);
    if (shape[i] < 0) return false;
  }
  const auto bytes = FromHexadecimal(entry.at("algorithm").get_ref<const std::string&>());
  const auto milliseconds = entry.at("milliseconds").get<double>();
  constexpr double kMost = 1e9;
  if (!bytes || !(milliseconds >= 0 && milliseconds <= kMost)) return false;
  store.Add(shape, {*bytes, static_cast<float>(milliseconds)});
  return true;
}

std::string Version(int64_t version) { return Format("{}.{}", version / 1000, version / 10 % 100); }

}  // namespace

std::string AlgorithmIdentity::ToString() const {
  // cuBLASLt counts in steps of 10000, 100 and 1, CUDA in steps of 1000 and 10.
  return Format("{} ({}), driver of CUDA {}, cuBLASLt {}.{}.{}", gpu, compute_capability,
                Version(driver), cublaslt / 10000, cublaslt / 100 % 100, cublaslt % 100);
}

Result<AlgorithmStore> AlgorithmStore::Parse(std::string_view text, std::string_view origin) {
  const Error bad =
      Error::BadInput(std::string(origin) + ": no algorithms of matrix products of headroom");
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, origin, kLargest, ignored));
  try {
    if (json.at("schema") != kSchema) return bad;
    std::optional<AlgorithmIdentity> identity = IdentityIn(json);
    if (!identity) return bad;
    AlgorithmStore store(std::move(*identity));
    for (const Json& entry : json.at("algorithms")) {
      if (!AddFrom(entry, store)) return bad;
    }
    return store;
  } catch (const Json::exception&) {
    return bad;
  }
}

std::string AlgorithmStore::ToText() const {
  std::string text = Format(
      "{{\"schema\": \"{}\",\n \"gpu\": {}, \"compute_capability\": {}, \"driver\": {}, "
      "\"cublaslt\": {},\n \"algorithms\": [",
      kSchema, Json(identity_.gpu).dump(), Json(identity_.compute_capability).dump(),
      identity_.driver, identity_.cublaslt);
  const char* separator = "\n";
  for (const auto& [shape, algorithm] : algorithms_) {
    text += separator;
    text += Format("  {{\"shape\": {}, \"algorithm\": \"{}\", \"milliseconds\": {}}}",
                   Json(shape).dump(), Hexadecimal(algorithm.bytes), algorithm.milliseconds);
    separator = ",\n";
  }
  return text + "]}\n";
}

const GemmAlgorithm* AlgorithmStore::Find(const GemmShape& shape) const {
  const auto found = algorithms_.find(shape);
  return found == algorithms_.end() ? nullptr : &found->second;
}

void AlgorithmStore::Add(const GemmShape& shape, const GemmAlgorithm& algorithm) {
  algorithms_.try_emplace(shape, algorithm);
}

void AlgorithmStore::Merge(const AlgorithmStore& other) {
  algorithms_.insert(other.algorithms_.begin(), other.algorithms_.end());
}

fs::path StoreFile(const fs::path& folder, const AlgorithmIdentity& identity) {
  std::string name = Format("gemm-{}-{}-{}-{}.json", identity.gpu, identity.compute_capability,
                            identity.driver, identity.cublaslt);
  for (char& c : name) {
    const bool kept =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.';
    if (!kept) c = '-';
  }
  return folder / name;
}

AlgorithmStore ReadStore(const fs::path& folder, const AlgorithmIdentity& identity) {
  const fs::path path = StoreFile(folder, identity);
  const Result<std::string> text = ReadFile(path, kLargest);
  if (!text.ok()) return AlgorithmStore(identity);
  Result<AlgorithmStore> store = AlgorithmStore::Parse(*text, path.string());
  if (!store.ok() || store->identity() != identity) return AlgorithmStore(identity);
  return std::move(*store);
}

// What was chosen stands before what the file has: that was not known or was refused. Two processes
// that write at once may lose the choices of one, which then are made again.
Status AddToStore(const fs::path& folder, const AlgorithmStore& chosen) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  AlgorithmStore store = chosen;
  store.Merge(ReadStore(folder, chosen.identity()));
  return WriteFile(StoreFile(folder, chosen.identity()), store.ToText());
}

}  // namespace headroom::engine::cuda
