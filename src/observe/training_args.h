// SPDX-License-Identifier: Apache-2.0
//
// training_args.bin, which Trainer saves beside every checkpoint, as plain values.
//
// The file is torch.save of a TrainingArguments object: a pickle that imports and calls. Here it is
// read as data; an enum's value (OptimizerNames("adamw_torch_fused")) stands for the enum, and what
// is no number, text, list or dict of such is left out.
//
//   {"bf16": true, "optim": "adamw_torch_fused", "per_device_train_batch_size": 4, …}
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headroom::observe {

// Whether the bytes are those of a torch.save archive.
bool LooksLikeTorchArchive(std::string_view bytes);

// A JSON object of the attributes for which `wanted` is true. Fails, without a file's name, on what
// is no such archive, on pickles that are not sound, and on objects of another class.
Result<std::string> TrainingArgumentsJson(std::string_view bytes,
                                          const std::function<bool(std::string_view)>& wanted);

}  // namespace headroom::observe
