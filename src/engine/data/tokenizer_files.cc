// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/file.h"
#include "engine/data/lines.h"
#include "engine/data/tokenizer.h"
#include "engine/data/tokenizer_access.h"
#include "engine/data/tokenizer_layouts.h"
#include "engine/data/tokenizer_parts.h"
#include "engine/data/unicode.h"
#include "engine/files/atomic_file.h"

namespace headroom::engine {
namespace {

namespace fs = std::filesystem;

constexpr Bytes kLargestFile = MiB(128);
constexpr const char* kConfigFile = "tokenizer_config.json";

using Role = std::pair<const char*, std::optional<int32_t> SpecialIds::*>;
constexpr std::array<Role, 7> kRoles = {{{"pad_token", &SpecialIds::pad},
                                         {"cls_token", &SpecialIds::cls},
                                         {"sep_token", &SpecialIds::sep},
                                         {"bos_token", &SpecialIds::bos},
                                         {"eos_token", &SpecialIds::eos},
                                         {"unk_token", &SpecialIds::unk},
                                         {"mask_token", &SpecialIds::mask}}};

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<Json> ReadJson(const fs::path& path) {
  std::vector<std::string> ignored;
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestFile));
  return ParseJsonObject(text, path.string(), kLargestFile, ignored);
}

// An object without members where there is no such file.
Result<Json> ReadJsonIfThere(const fs::path& path) {
  if (!IsFile(path)) return Json::object();
  return ReadJson(path);
}

// A token is its text, or an object with its "content".
void TakeRoles(const Json& config, TokenizerParts& parts) {
  for (const auto& [key, role] : kRoles) {
    const Json& value = Member(config, key);
    const std::string content = value.is_object() ? Text(value, "content") : Text(config, key);
    if (content.empty()) continue;
    if (const std::optional<int32_t> id = parts.Id(content)) parts.special.*role = id;
  }
}

Result<Json> FromVocabularyText(const fs::path& path, const Json& config) {
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestFile));
  Json vocabulary = Json::object();
  int32_t id = 0;
  for (std::string_view line : LinesOf(text)) {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t')) line.remove_suffix(1);
    if (!IsValidUtf8(line)) {
      return Error::BadInput(Format("{}: line {}: not UTF-8", path.string(), id + 1));
    }
    vocabulary[std::string(line)] = id++;
  }
  BertLayout layout{.lowercase = Flag(config, "do_lower_case", true),
                    .chinese_chars = Flag(config, "tokenize_chinese_chars", true)};
  if (const Json& strip = Member(config, "strip_accents"); strip.is_boolean()) {
    layout.strip_accents = strip.get<bool>();
  }
  Result<Json> json = BertJson(vocabulary, layout);
  if (!json.ok()) return json.error().In(path.string());
  return json;
}

// The lines of a merges.txt, "#version" left out.
Result<Json> ReadMerges(const fs::path& path) {
  HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kLargestFile));
  Json merges = Json::array();
  int64_t number = 0;
  for (const std::string_view line : LinesOf(text)) {
    ++number;
    if (line.starts_with("#version") || line.empty()) continue;
    const size_t space = line.find(' ');
    const bool two = space != std::string_view::npos && space > 0 && space + 1 < line.size() &&
                     line.find(' ', space + 1) == std::string_view::npos;
    if (!two || !IsValidUtf8(line)) {
      return Error::BadInput(Format("{}: line {}: {} is not two tokens with a space between",
                                    path.string(), number, Quoted(line)));
    }
    merges.push_back(std::string(line));
  }
  return merges;
}

Result<Json> FromVocabularyAndMerges(const fs::path& folder, const Json& config) {
  HEADROOM_ASSIGN_OR_RETURN(Json vocabulary, ReadJson(folder / "vocab.json"));
  HEADROOM_ASSIGN_OR_RETURN(Json merges, ReadMerges(folder / "merges.txt"));
  ByteLevelLayout layout{.add_prefix_space = Flag(config, "add_prefix_space", false)};
  // GPT-2's vocabulary knows no mask.
  layout.roberta = vocabulary.contains("<mask>") && vocabulary.contains("<s>");
  layout.special_tokens = {"<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"};
  Result<Json> json = ByteLevelJson(std::move(vocabulary), std::move(merges), layout);
  if (!json.ok()) return json.error().In((folder / "vocab.json").string());
  return json;
}

struct Source {
  enum class Kind : uint8_t { kTokenizerJson, kVocabularyText, kVocabularyAndMerges };
  Kind kind = Kind::kTokenizerJson;
  fs::path path;    // the file; of kVocabularyAndMerges the folder
  fs::path folder;  // with the files beside it
};

Result<Source> FindSource(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return Error::BadInput(Format("{}: no such file or folder", path.string()));
  }
  using Kind = Source::Kind;
  if (!fs::is_directory(path, ignored)) {
    const Kind kind = path.extension() == ".txt" ? Kind::kVocabularyText : Kind::kTokenizerJson;
    return Source{kind, path, path.parent_path()};
  }
  if (IsFile(path / "tokenizer.json")) {
    return Source{Kind::kTokenizerJson, path / "tokenizer.json", path};
  }
  if (IsFile(path / "vocab.txt")) return Source{Kind::kVocabularyText, path / "vocab.txt", path};
  if (IsFile(path / "vocab.json") && IsFile(path / "merges.txt")) {
    return Source{Kind::kVocabularyAndMerges, path, path};
  }
  return Error::BadInput(
      Format("{}: no tokenizer here: neither tokenizer.json, vocab.txt nor vocab.json with "
             "merges.txt{}",
             path.string(),
             IsFile(path / "tokenizer.model") || IsFile(path / "spiece.model")
                 ? "; SentencePiece models are not read: convert it with transformers"
                 : ""));
}

Result<std::shared_ptr<TokenizerParts>> LoadParts(const Source& source, const Json& config) {
  if (source.kind == Source::Kind::kTokenizerJson) {
    HEADROOM_ASSIGN_OR_RETURN(const std::string text, ReadFile(source.path, kLargestFile));
    return ParseTokenizerParts(text, source.path.string());
  }
  HEADROOM_ASSIGN_OR_RETURN(const Json json, source.kind == Source::Kind::kVocabularyText
                                                 ? FromVocabularyText(source.path, config)
                                                 : FromVocabularyAndMerges(source.path, config));
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<TokenizerParts> parts,
                            MakeTokenizerParts(json, source.path.string()));
  parts->json = json.dump();
  return parts;
}

Json ConfigOf(const TokenizerParts& parts) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, role] : kRoles) {
    if (const std::optional<int32_t>& id = parts.special.*role) {
      config[key] = std::string(parts.Token(*id));
    }
  }
  return config;
}

}  // namespace

Result<Tokenizer> Tokenizer::Load(const fs::path& path) {
  HEADROOM_ASSIGN_OR_RETURN(const Source source, FindSource(path));
  HEADROOM_ASSIGN_OR_RETURN(const Json config, ReadJsonIfThere(source.folder / kConfigFile));
  HEADROOM_ASSIGN_OR_RETURN(const Json roles,
                            ReadJsonIfThere(source.folder / "special_tokens_map.json"));
  HEADROOM_ASSIGN_OR_RETURN(std::shared_ptr<TokenizerParts> parts, LoadParts(source, config));
  TakeRoles(roles, *parts);
  TakeRoles(config, *parts);
  if (!config.empty()) parts->config = config.dump(2);
  return Tokenizer(std::move(parts));
}

std::map<std::string, std::string> Tokenizer::Files() const {
  const std::string config = parts_->config.empty() ? ConfigOf(*parts_).dump(2) : parts_->config;
  return {{"tokenizer.json", parts_->json}, {kConfigFile, config + "\n"}};
}

Status Tokenizer::Save(const fs::path& folder) const {
  for (const auto& [name, text] : Files()) {
    HEADROOM_RETURN_IF_ERROR(WriteFileAtomically(folder / name, text));
  }
  return {};
}

}  // namespace headroom::engine
