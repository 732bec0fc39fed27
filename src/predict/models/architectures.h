// SPDX-License-Identifier: Apache-2.0
//
// The table of architectures; each is defined in its own file. See docs/adding_an_architecture.md.
#pragma once

#include "predict/model.h"

namespace headroom::predict {

extern const Architecture kAlbert;
extern const Architecture kBart;
extern const Architecture kBert;
extern const Architecture kBloom;
extern const Architecture kCamembert;
extern const Architecture kCodegen;
extern const Architecture kCohere;
extern const Architecture kDeit;
extern const Architecture kDebertaV2;
extern const Architecture kDistilBert;
extern const Architecture kElectra;
extern const Architecture kFalcon;
extern const Architecture kGemma;
extern const Architecture kGemma2;
extern const Architecture kGemma3Text;
extern const Architecture kGpt2;
extern const Architecture kGptBigcode;
extern const Architecture kGptj;
extern const Architecture kGptNeo;
extern const Architecture kGptNeox;
extern const Architecture kGranite;
extern const Architecture kLlama;
extern const Architecture kMarian;
extern const Architecture kMbart;
extern const Architecture kMistral;
extern const Architecture kMixtral;
extern const Architecture kMpt;
extern const Architecture kMt5;
extern const Architecture kOlmo;
extern const Architecture kOlmo2;
extern const Architecture kOpt;
extern const Architecture kPegasus;
extern const Architecture kPhi;
extern const Architecture kPhi3;
extern const Architecture kQwen2;
extern const Architecture kQwen2Moe;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;
extern const Architecture kT5;
extern const Architecture kModernBert;
extern const Architecture kRoberta;
extern const Architecture kSmolLm3;
extern const Architecture kStableLm;
extern const Architecture kStarCoder2;
extern const Architecture kTorchTransformer;
extern const Architecture kVit;
extern const Architecture kWhisper;
extern const Architecture kXlmRoberta;

}  // namespace headroom::predict
