// SPDX-License-Identifier: Apache-2.0
//
// Does the run complete on this device?
//
// Neither peak answers that. Under a cap the allocator gives cached blocks back and tries again, so
// a run can complete below its peak reserved, and fragmentation can stop it above its peak
// allocated. So the run is played again under the cap:
//
//   cap >= peak reserved                 it fits, no second play is needed
//   its allocations, replayed under the cap, complete    it just fits
//   they do not      it is short by the smallest cap that completes, less this one
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "predict/predict.h"
#include "report/plan_report.h"

namespace headroom::cli {

struct Budget {
  std::string gpu;  // empty when only a size was given
  Bytes memory;     // what the process may hold, CUDA context included
};

// Plays the run under a cap on what the allocator reserves.
using PlayUnder = std::function<Result<Prediction>(std::optional<Bytes> cap)>;

// `unlimited` is the same run without a cap.
Result<Verdict> Judge(const Prediction& unlimited, const Budget& budget, const PlayUnder& play);

}  // namespace headroom::cli
