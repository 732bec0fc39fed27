// SPDX-License-Identifier: Apache-2.0
//
// What a recording says, for a terminal and for a browser.
#pragma once

#include <string>

#include "observe/recording.h"
#include "report/html_report.h"
#include "report/text.h"

namespace headroom::cli {

// The ladder, the chart and the processes of every GPU that the watched used; of every GPU when
// nothing was watched.
std::string RecordingText(const observe::Recording& recording, const TextStyle& style);

ReportPage RecordingPage(const observe::Recording& recording);

// The watched processes on the GPU where they held most; where nothing was watched, the card. Null
// when the recording saw none.
const observe::DeviceRecording* BusiestDevice(const observe::Recording& recording);
// What they held at their peak, and that in a sentence with what stands apart.
Bytes PeakOf(const observe::DeviceRecording& device);
std::string PeakWords(const observe::Recording& recording, const observe::DeviceRecording& device);
// Their memory over time, thinned for a page.
PageTimeline TimelineOf(const observe::Recording& recording,
                        const observe::DeviceRecording& device);

}  // namespace headroom::cli
