// SPDX-License-Identifier: Apache-2.0
#include "graph/op.h"

#include <array>

#include "base/check.h"

namespace headroom::graph {
namespace {

struct KindFacts {
  std::string_view name;
  OpClass op_class;
};

// By position of OpKind.
constexpr std::array<KindFacts, kOpKindCount> kFacts = {{
    {"embedding", OpClass::kElementwise},
    {"embedding_backward", OpClass::kElementwise},
    {"linear", OpClass::kContraction},
    {"linear_backward_input", OpClass::kContraction},
    {"linear_backward_weight", OpClass::kContraction},
    {"norm", OpClass::kNormalisation},
    {"norm_backward", OpClass::kNormalisation},
    {"attention", OpClass::kContraction},
    {"attention_backward", OpClass::kContraction},
    {"rope", OpClass::kElementwise},
    {"rope_backward", OpClass::kElementwise},
    {"activation", OpClass::kElementwise},
    {"activation_backward", OpClass::kElementwise},
    {"glu", OpClass::kElementwise},
    {"glu_backward", OpClass::kElementwise},
    {"add", OpClass::kElementwise},
    {"dropout", OpClass::kElementwise},
    {"dropout_backward", OpClass::kElementwise},
    {"select_rows", OpClass::kElementwise},
    {"select_rows_backward", OpClass::kElementwise},
    {"cross_entropy", OpClass::kNormalisation},
    {"linear_loss", OpClass::kContraction},
    {"grad_norm", OpClass::kNormalisation},
    {"update", OpClass::kElementwise},
}};

const KindFacts& FactsOf(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  HEADROOM_CHECK(index < kFacts.size(), "an op of no kind");
  return kFacts[index];
}

}  // namespace

std::string_view Name(OpKind kind) { return FactsOf(kind).name; }

size_t SumsOutput(OpKind kind) {
  if (kind == OpKind::kActivationBackward) return 1;
  return kind == OpKind::kNormBackward ? 4 : 0;
}

OpClass ClassOf(OpKind kind) { return FactsOf(kind).op_class; }

std::string_view Name(OpClass op_class) {
  switch (op_class) {
    case OpClass::kContraction:
      return "contraction";
    case OpClass::kNormalisation:
      return "normalisation";
    case OpClass::kElementwise:
      return "element-wise";
  }
  return "";
}

}  // namespace headroom::graph
