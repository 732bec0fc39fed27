// SPDX-License-Identifier: Apache-2.0
//
// HtmlReport: one page for a browser, from any ledger. The file needs nothing else: styles, scripts
// and data stand in it, and it forbids itself the network.
//
//   verdict and totals                 what ReportPage says
//   memory over time                   of every ledger or timeline: stacked, peak marked, phases
//   the peak, component x module       of every ledger, as an icicle
//   tables that sort                   of every ledger (components, phases, modules, holders), then
//                                      the page's own
//   notes                              assumptions, warnings
//
// A command fills in what it knows; what is empty leaves no trace on the page:
//
//   ReportPage page{.kind = "plan", .heading = "bert-large-uncased"};
//   page.ledgers = {{.name = "", .ledger = &ledger}};
//   WriteFile(path, HtmlReport(page));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "ledger/ledger.h"

namespace headroom {

// How a sentence is meant; the page says it in words, a colour supports it.
enum class Tone : uint8_t { kPlain, kGood, kWarning, kBad };

struct PageSentence {
  Tone tone = Tone::kPlain;
  std::string text;
};

struct PageTotal {
  std::string name;
  Bytes bytes;
  std::string meaning;  // "the tensors, at the peak"
};

// A number that is neither a size nor a count nor a share.
struct PageNumber {
  double value = 0;
  int decimals = 2;
};

// A cell of a table: nothing, words, a size (0 shows as nothing), a count, a fraction (0.05 is 5
// %), a number, or a component, which shows as its name beside its colour.
using PageCell =
    std::variant<std::monostate, std::string, Bytes, int64_t, double, PageNumber, Component>;

struct PageTable {
  std::string heading;
  std::string note;  // a sentence under the heading
  std::vector<std::string> columns;
  std::vector<std::vector<PageCell>> rows;    // each as long as `columns`
  std::vector<std::vector<PageCell>> totals;  // stay at the foot when the rows are sorted
};

struct PageList {
  std::string heading;
  std::vector<std::string> items;
};

// A rung of a ladder: drawn as a bar.
struct PageRung {
  std::string name;
  Bytes bytes;
};

// One run on the page. The ledger outlives the call of HtmlReport.
struct PageLedger {
  std::string name;  // heads its sections; empty when there is only one
  const Ledger* ledger = nullptr;
  int64_t parameters = 0;  // for bytes per parameter; 0 leaves the column out
};

// Memory over time of what has no ledger: a process that was watched from outside. The page draws
// every moment: thin a long recording first.
struct PageTimeline {
  struct Layer {
    std::string name;
    std::optional<Component> component;  // whose colour it has; else the page chooses
    std::vector<Bytes> bytes;            // one per moment
  };
  struct Phase {
    double from = 0;
    double to = 0;
    std::string name;
    int step = 0;
  };
  std::string name;
  std::vector<double> seconds;  // ascending
  std::vector<Layer> layers;    // bottom to top; the peak is that of the lowest
  std::vector<Phase> phases;
};

// Numbers over steps, drawn as lines.
struct PageCurve {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points = {};  // step and value, ascending
  };
  std::string heading;
  std::vector<Line> lines;
};

struct ReportPage {
  std::string generator;  // "headroom 0.1.0"
  std::string kind;       // the command: "plan", "explain", "diff", "watch"
  std::string heading;    // the model, the file, the command line
  std::vector<std::string> facts;
  std::vector<PageSentence> summary;  // the verdict first
  std::vector<PageTotal> totals;
  std::vector<PageRung> ladder;
  std::optional<PageRung> limit;  // what there is at most: a line in every timeline
  std::vector<PageLedger> ledgers;
  std::vector<PageTimeline> timelines;
  std::vector<PageCurve> curves;
  bool side_by_side = false;  // pictures of two runs, in two columns and on one scale
  std::vector<PageTable> tables;
  std::vector<PageList> lists;
};

// The page, as UTF-8 text that ends in a newline. The same page gives the same bytes.
std::string HtmlReport(const ReportPage& page);

}  // namespace headroom
