// SPDX-License-Identifier: Apache-2.0
#include "engine/files/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/tiny_models.h"

namespace headroom::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::string PathOf(const std::string& name) { return testing::TempDir() + name; }

TinyModel ModelNamed(const std::string& name) {
  for (TinyModel& model : TinyModels()) {
    if (model.name == name) return model;
  }
  return {};
}

std::string Saved(const TinyRun& run, DType dtype = DType::kFloat32) {
  const std::string path = PathOf("weights.safetensors");
  const Status saved = SaveWeights(path, run.step().model, run.executor(), dtype);
  EXPECT_TRUE(saved.ok()) << saved.error().message;
  return path;
}

Result<LoadedWeights> Loaded(const std::string& path, const TinyRun& run) {
  Result<SafetensorsReader> reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok());
  return LoadWeights(*reader, run.step().model, run.executor());
}

// The tensors of `path` again, under other names, in other shapes, or (nullopt) not at all.
struct Stored {
  std::string name;
  Shape shape;
};
using Edit = std::function<std::optional<Stored>(const std::string&, const Shape&)>;

std::string Edited(const std::string& path, const Edit& edit) {
  Result<SafetensorsReader> reader = SafetensorsReader::Open(path);
  std::vector<SafetensorsWriter::Tensor> tensors;
  std::vector<std::string_view> from;
  for (const std::string_view name : reader->Names()) {
    const TensorEntry& entry = *reader->Find(name);
    if (std::optional<Stored> stored = edit(std::string(name), entry.shape)) {
      tensors.push_back({stored->name, *entry.dtype, stored->shape});
      from.push_back(name);
    }
  }
  const std::string edited = PathOf("edited.safetensors");
  Result<SafetensorsWriter> writer = SafetensorsWriter::Create(edited, tensors);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto size = static_cast<size_t>(tensors[i].shape.NumElements() * sizeof(float));
    EXPECT_TRUE(writer->Write(tensors[i].name, reader->Find(from[i])->bytes.first(size)).ok());
  }
  EXPECT_TRUE(writer->Finish().ok());
  return edited;
}

TEST(Weights, ComeBackToTheBit) {
  for (const TinyModel& model : TinyModels()) {
    SCOPED_TRACE(model.name);
    const TinyRun saved(model, TinyOptions(model), 7);
    TinyRun loaded(model, TinyOptions(model), 8);
    EXPECT_NE(loaded.Weights(), saved.Weights());
    const Result<LoadedWeights> result = Loaded(Saved(saved), loaded);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_THAT(result->initialised, IsEmpty());
    EXPECT_THAT(result->unused, IsEmpty());
    EXPECT_EQ(loaded.Weights(), saved.Weights());
  }
}

// Masters and the weights beside them.
TEST(Weights, OfSixteenBitsComeBackToTheBit) {
  const TinyModel model = ModelNamed("llama");
  NativeOptions options = TinyOptions(model);
  options.precision = Precision::kBf16;
  TinyRun saved(model, options, 7);
  TinyRun loaded(model, options, 8);
  ASSERT_TRUE(Loaded(Saved(saved), loaded).ok());
  EXPECT_EQ(loaded.Weights(), saved.Weights());
  loaded.scalars().seed = saved.scalars().seed;
  FillTinyInputs(loaded.executor(), options.model.rows.batch, 7);
  EXPECT_EQ(loaded.ForwardBackward(), saved.ForwardBackward());
}

TEST(Weights, AreStoredInTheTypeAskedFor) {
  const TinyModel model = ModelNamed("gpt2");
  const TinyRun run(model, TinyOptions(model));
  const std::string path = Saved(run, DType::kBFloat16);
  Result<SafetensorsReader> reader = SafetensorsReader::Open(path);
  EXPECT_EQ(reader->Find("transformer.h.0.mlp.c_fc.weight")->stored_dtype, "BF16");
  EXPECT_EQ(reader->Find("lm_head.weight"), nullptr);
  NativeOptions lean = TinyOptions(model);
  lean.precision = Precision::kBf16;
  lean.lean = true;
  const TinyRun low(model, lean, 8);
  ASSERT_TRUE(Loaded(path, low).ok());
  TinyRun back(model, TinyOptions(model), 9);
  ASSERT_TRUE(Loaded(path, back).ok());
  const std::string again = Saved(low, DType::kFloat32);
  TinyRun twice(model, TinyOptions(model), 10);
  ASSERT_TRUE(Loaded(again, twice).ok());
  EXPECT_EQ(twice.Weights(), back.Weights());
}

TEST(Weights, OfTheBaseModelLeaveTheHeadAsItWas) {
  const TinyModel model = ModelNamed("bert classifier");
  const TinyRun saved(model, TinyOptions(model), 7);
  const std::string base = Edited(
      Saved(saved), [](const std::string& name, const Shape& shape) -> std::optional<Stored> {
        if (!name.starts_with("bert.")) return std::nullopt;
        std::string rest = name.substr(5);
        const size_t norm = rest.find("LayerNorm.weight");
        if (norm != std::string::npos) rest.replace(norm, 16, "LayerNorm.gamma");
        return Stored{rest, shape};
      });
  const TinyRun loaded(model, TinyOptions(model), 7);
  const Result<LoadedWeights> result = Loaded(base, loaded);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->initialised, ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_EQ(loaded.Weights(), saved.Weights());
}

TEST(Weights, OfAnotherHeadAreNamed) {
  const TinyModel classifier = ModelNamed("bert classifier");
  const TinyModel masked = ModelNamed("bert masked lm");
  const TinyRun saved(classifier, TinyOptions(classifier));
  const Result<LoadedWeights> result = Loaded(Saved(saved), TinyRun(masked, TinyOptions(masked)));
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_THAT(result->unused, ElementsAre("bert.pooler.dense.bias", "bert.pooler.dense.weight",
                                          "classifier.bias", "classifier.weight"));
  EXPECT_THAT(result->initialised,
              testing::Contains(StartsWith("cls.predictions.transform.dense")));
}

TEST(Weights, KnowsTheSecondNameOfATiedParameter) {
  const TinyModel model = ModelNamed("bart");
  const TinyRun saved(model, TinyOptions(model), 7);
  const std::string path = Edited(Saved(saved), [](const std::string& name, const Shape& shape) {
    return Stored{name == "model.shared.weight" ? "model.decoder.embed_tokens.weight" : name,
                  shape};
  });
  const TinyRun loaded(model, TinyOptions(model), 8);
  ASSERT_TRUE(Loaded(path, loaded).ok());
  EXPECT_EQ(loaded.Weights(), saved.Weights());
}

TEST(Weights, NamesTheFirstThatDoesNotFit) {
  const TinyModel model = ModelNamed("llama");
  const TinyRun run(model, TinyOptions(model), 7);
  const auto before = run.Weights();
  const std::string path = Saved(run);
  const std::string absent =
      Edited(path, [](const std::string& name, const Shape& shape) -> std::optional<Stored> {
        if (name.find("layers.1.self_attn.k_proj") != std::string::npos) return std::nullopt;
        return Stored{name, shape};
      });
  Result<LoadedWeights> result = Loaded(absent, TinyRun(model, TinyOptions(model), 8));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "the checkpoint has no tensor model.layers.1.self_attn.k_proj.weight of shape [16, "
            "32]: is it of this config?");
  const std::string smaller = Edited(path, [](const std::string& name, const Shape& shape) {
    Shape halved = shape;
    if (name.find("mlp") != std::string::npos) halved[0] /= 2;
    return Stored{name, halved};
  });
  result = Loaded(smaller, run);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "the checkpoint has tensor model.layers.0.mlp.gate_proj.weight of shape [20, 32], "
            "where the config asks for [40, 32]; 5 more do not fit: is it of this config?");
  EXPECT_EQ(run.Weights(), before);  // nothing was written
}

TEST(Weights, PassesOverBuffersAndRefusesABiasItWouldNotAdd) {
  const TinyModel model = ModelNamed("marian");
  const TinyRun run(model, TinyOptions(model), 7);
  const std::string path = Saved(run);
  for (const float bias : {0.0F, 0.5F}) {
    Result<SafetensorsReader> reader = SafetensorsReader::Open(path);
    std::vector<SafetensorsWriter::Tensor> tensors = {
        {"final_logits_bias", DType::kFloat32, Shape{1}},
        {"model.encoder.embed_positions.weight", DType::kFloat32, Shape{1}}};
    for (const std::string_view name : reader->Names()) {
      tensors.push_back({std::string(name), DType::kFloat32, reader->Find(name)->shape});
    }
    const std::string more = PathOf("more.safetensors");
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(more, tensors);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const auto bytes =
          i < 2 ? std::as_bytes(std::span(&bias, 1)) : reader->Find(tensors[i].name)->bytes;
      ASSERT_TRUE(writer->Write(tensors[i].name, bytes).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    const Result<LoadedWeights> result = Loaded(more, run);
    EXPECT_EQ(result.ok(), bias == 0);
    if (result.ok()) {
      EXPECT_THAT(result->unused, IsEmpty());
    } else {
      EXPECT_THAT(result.error().message, HasSubstr("final_logits_bias"));
    }
  }
}

}  // namespace
}  // namespace headroom::engine
