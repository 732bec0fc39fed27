// SPDX-License-Identifier: Apache-2.0
#include "predict/models/architectures.h"

#include <array>

namespace headroom::predict {
namespace {

const std::array<const Architecture*, 3> kArchitectures = {&kBert, &kGpt2, &kLlama};

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
