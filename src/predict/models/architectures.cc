// SPDX-License-Identifier: Apache-2.0
#include "predict/models/architectures.h"

namespace headroom::predict {
namespace {

const Architecture* const kArchitectures[] = {
    &kAlbert,
    &kBart,   //
    &kBert,   //
    &kBloom,  //
    &kCamembert,  &kCohere,
    &kCodegen,  //
    &kDeit,       &kDebertaV2, &kDistilBert, &kElectra,
    &kFalcon,  //
    &kGemma,      &kGemma2,    &kGemma3Text,
    &kGpt2,        //
    &kGptBigcode,  //
    &kGptj,        //
    &kGptNeo,      //
    &kGptNeox,     //
    &kGranite,
    &kLlama,   //
    &kMarian,  //
    &kMbart,   //
    &kMistral,    &kMixtral,
    &kMpt,  //
    &kMt5,        &kOlmo,      &kOlmo2,
    &kOpt,  //
    &kPegasus,    &kPhi,       &kPhi3,       &kQwen2,    &kQwen2Moe,   &kQwen3, &kQwen3Moe,
    &kModernBert, &kRoberta,   &kSmolLm3,    &kStableLm, &kStarCoder2, &kT5,    &kTorchTransformer,
    &kVit,        &kWhisper,   &kXlmRoberta,
};

}  // namespace

const Architecture* FindArchitecture(std::string_view model_type) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->model_type == model_type) return architecture;
  }
  return nullptr;
}

std::vector<std::string_view> ArchitectureNames() {
  std::vector<std::string_view> names;
  for (const Architecture* architecture : kArchitectures) names.push_back(architecture->model_type);
  return names;
}

}  // namespace headroom::predict
