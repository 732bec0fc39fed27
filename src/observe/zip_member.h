// SPDX-License-Identifier: Apache-2.0
//
// One file of a zip archive as torch.save writes it (caffe2/serialize/inline_container.cc): members
// are stored or deflated, and the object's pickle is "ANY/data.pkl".
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace headroom::observe {

// The content of the first member whose name ends in `suffix`. Fails on what is no zip archive, on
// one without such a member, and on members of more than `limit`.
Result<std::string> ReadZipMember(std::string_view archive, std::string_view suffix, Bytes limit);

}  // namespace headroom::observe
