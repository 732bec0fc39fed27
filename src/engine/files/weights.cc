// SPDX-License-Identifier: Apache-2.0
#include "engine/files/weights.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>

#include "base/format.h"
#include "engine/files/convert.h"
#include "engine/initialise.h"

namespace headroom::engine {
namespace {

using graph::Parameter;
using graph::ParameterPart;

std::string Replaced(std::string text, std::string_view what, std::string_view by) {
  const size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), by);
  return text;
}

// The names that a parameter may have in a checkpoint, the likeliest first.
std::vector<std::string> CandidatesOf(const ModelGraph& model, const std::string& name) {
  std::vector<std::string> names = {name};
  for (const auto& [other, tied] : model.tied) {
    if (tied == name) names.push_back(other);
  }
  const std::string& prefix = model.base_prefix;
  const size_t own = names.size();
  for (size_t i = 0; i < own && !prefix.empty(); ++i) {
    const bool has = names[i].starts_with(prefix);
    names.push_back(has ? names[i].substr(prefix.size()) : prefix + names[i]);
  }
  // Converted from TensorFlow; transformers 5.17, conversion_mapping.py.
  if (name.find("LayerNorm.") != std::string::npos) {
    const size_t count = names.size();
    for (size_t i = 0; i < count; ++i) {
      names.push_back(Replaced(Replaced(names[i], "LayerNorm.weight", "LayerNorm.gamma"),
                               "LayerNorm.bias", "LayerNorm.beta"));
    }
  }
  return names;
}

bool IsBase(const ModelGraph& model, const std::string& name) {
  return name.starts_with(model.base_prefix) && !name.starts_with(model.base_prefix + "pooler.");
}

// What checkpoints hold beside parameters, all of it computed here: positions, masks, tables of
// sines (transformers 5.17: Marian's; before 4.31: "position_ids", "attn.bias", "inv_freq").
bool IsBuffer(std::string_view name) {
  constexpr std::array<std::string_view, 7> kEndings = {
      "embeddings.position_ids", "embeddings.token_type_ids", ".attn.bias", ".attn.masked_bias",
      "rotary_emb.inv_freq",     "embed_positions.weight",    ".version"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{}; });
}

// A part's bytes inside its parameter.
std::span<std::byte> PlaceOf(const TensorView& tensor, const ParameterPart& part) {
  const int64_t columns = tensor.shape.rank() > 1 ? tensor.shape[-1] : 1;
  const int64_t element = ElementSize(tensor.dtype);
  return {tensor.data + part.first_row * columns * element,
          static_cast<size_t>(part.shape.NumElements() * element)};
}

class Loader {
 public:
  Loader(const SafetensorsReader& reader, const ModelGraph& model, const Executor& executor)
      : reader_(reader), model_(model), executor_(executor) {}

  Result<LoadedWeights> Run() {
    HEADROOM_RETURN_IF_ERROR(Match());
    HEADROOM_RETURN_IF_ERROR(Sort());
    for (const Parameter& parameter : model_.graph.parameters()) {
      const TensorView& tensor = executor_.View(parameter.truth());
      for (const ParameterPart& part : parameter.parts) {
        const std::string stored = StoredName(part.name);
        if (stored.empty()) continue;
        HEADROOM_RETURN_IF_ERROR(reader_.Read(stored, tensor.dtype, PlaceOf(tensor, part)));
      }
    }
    CopyMasters(executor_);
    return std::move(result_);
  }

 private:
  std::string StoredName(const std::string& name) const {
    for (std::string& candidate : CandidatesOf(model_, name)) {
      if (reader_.Find(candidate) != nullptr) return candidate;
    }
    return "";
  }

  // Looks at every parameter before the first is written.
  Status Match() {
    size_t problems = 0;
    std::string first;
    const auto complain = [&](std::string problem) {
      if (problems++ == 0) first = std::move(problem);
    };
    for (const Parameter& parameter : model_.graph.parameters()) {
      for (const ParameterPart& part : parameter.parts) {
        const std::string stored = StoredName(part.name);
        if (stored.empty()) {
          if (IsBase(model_, part.name)) {
            complain(Format("has no tensor {} of shape {}", part.name, part.shape.ToString()));
          } else {
            result_.initialised.push_back(part.name);
          }
          continue;
        }
        const Shape& found = reader_.Find(stored)->shape;
        if (found != part.shape) {
          complain(Format("has tensor {} of shape {}, where the config asks for {}", stored,
                          found.ToString(), part.shape.ToString()));
        }
        for (std::string& candidate : CandidatesOf(model_, part.name)) {
          used_.insert(std::move(candidate));
        }
      }
    }
    if (problems == 0) return {};
    const std::string more = problems == 1 ? "" : Format("; {} more do not fit", problems - 1);
    return Error::BadInput(Format("the checkpoint {}{}: is it of this config?", first, more));
  }

  // What is in the file and was not asked for.
  Status Sort() {
    for (const std::string_view name : reader_.Names()) {
      if (used_.contains(name) || IsBuffer(name)) continue;
      if (name.ends_with("final_logits_bias")) {
        if (AllZero(reader_.Find(name)->bytes)) continue;
        return Error::Unsupported(
            "the checkpoint has a final_logits_bias other than 0, which the native engine does "
            "not add");
      }
      result_.unused.emplace_back(name);
    }
    return {};
  }

  const SafetensorsReader& reader_;
  const ModelGraph& model_;
  const Executor& executor_;
  std::set<std::string, std::less<>> used_;
  LoadedWeights result_;
};

// Converts through a buffer of a fixed size.
Status WritePart(SafetensorsWriter& writer, const std::string& name, DType from,
                 std::span<const std::byte> bytes, DType to) {
  if (from == to) return writer.Write(name, bytes);
  constexpr size_t kElements = 16384;
  std::array<std::byte, kElements * sizeof(double)> buffer;
  const auto element = static_cast<size_t>(ElementSize(from));
  const auto element_to = static_cast<size_t>(ElementSize(to));
  const size_t count = bytes.size() / element;
  for (size_t at = 0; at < count; at += kElements) {
    const size_t n = std::min(kElements, count - at);
    const std::span<std::byte> converted(buffer.data(), n * element_to);
    Convert(bytes.subspan(at * element, n * element), from, converted, to);
    HEADROOM_RETURN_IF_ERROR(writer.Write(name, converted, static_cast<int64_t>(at * element_to)));
  }
  return {};
}

}  // namespace

Result<LoadedWeights> LoadWeights(const SafetensorsReader& reader, const ModelGraph& model,
                                  const Executor& executor) {
  return Loader(reader, model, executor).Run();
}

Status SaveWeights(const std::filesystem::path& path, const ModelGraph& model,
                   const Executor& executor, DType dtype) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const Parameter& parameter : model.graph.parameters()) {
    for (const ParameterPart& part : parameter.parts) {
      tensors.push_back({.name = part.name, .dtype = dtype, .shape = part.shape});
    }
  }
  for (const auto& [name, id] : model.stored_constants) {
    tensors.push_back({.name = name, .dtype = dtype, .shape = model.graph.tensor(id).shape});
  }
  HEADROOM_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, tensors));
  const auto write = [&](const TensorView& tensor, const ParameterPart& part) {
    return WritePart(writer, part.name, tensor.dtype, PlaceOf(tensor, part), dtype);
  };
  for (const Parameter& parameter : model.graph.parameters()) {
    for (const ParameterPart& part : parameter.parts) {
      HEADROOM_RETURN_IF_ERROR(write(executor.View(parameter.truth()), part));
    }
  }
  for (const auto& [name, id] : model.stored_constants) {
    const TensorView& tensor = executor.View(id);
    HEADROOM_RETURN_IF_ERROR(write(tensor, {.name = name, .shape = tensor.shape}));
  }
  return writer.Finish();
}

}  // namespace headroom::engine
