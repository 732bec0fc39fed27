// SPDX-License-Identifier: Apache-2.0
#include "report/html_report.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "report/curve_html.h"
#include "report/html_sections.h"
#include "report/html_writer.h"
#include "report/page_assets.h"
#include "report/page_data.h"

namespace headroom {
namespace {

// Scripts and styles come from the page itself; nothing is fetched and nothing is sent.
constexpr std::string_view kPolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'";

std::string_view ToneClass(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "good";
    case Tone::kWarning:
      return "warning";
    case Tone::kBad:
      return "bad";
    case Tone::kPlain:
      break;
  }
  return "plain";
}

std::string Head(const ReportPage& page) {
  const std::string title = EscapeHtml(page.heading);
  return Format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n"
      "<title>{} · headroom {}</title>\n<style>\n{}</style>\n</head>\n",
      kPolicy, title, EscapeHtml(page.kind), PageStyle());
}

std::string Banner(const ReportPage& page) {
  std::string out =
      Format("<header class=\"banner\">\n<div>\n<p class=\"kind\">headroom {}</p>\n<h1>{}</h1>\n",
             EscapeHtml(page.kind), EscapeHtml(page.heading));
  if (!page.facts.empty()) {
    out += "<ul class=\"facts\">";
    for (const std::string& fact : page.facts) {
      out += Format("<li>{}</li>", EscapeHtml(fact));
    }
    out += "</ul>\n";
  }
  return out +
         "</div>\n<div class=\"choices\" id=\"theme\" role=\"group\" aria-label=\"Colours\" hidden>"
         "<button type=\"button\" data-theme=\"auto\" aria-pressed=\"true\">Auto</button>"
         "<button type=\"button\" data-theme=\"light\" aria-pressed=\"false\">Light</button>"
         "<button type=\"button\" data-theme=\"dark\" aria-pressed=\"false\">Dark</button></div>\n"
         "</header>\n";
}

std::string Summary(const ReportPage& page) {
  if (page.summary.empty()) return "";
  std::string out = "<section class=\"summary\" aria-label=\"Summary\">\n";
  for (const PageSentence& sentence : page.summary) {
    out += Format("<p class=\"{}\">{}</p>\n", ToneClass(sentence.tone), EscapeHtml(sentence.text));
  }
  return out + "</section>\n";
}

std::string Totals(const ReportPage& page) {
  if (page.totals.empty()) return "";
  std::string out = "<dl class=\"totals\">\n";
  for (const PageTotal& total : page.totals) {
    out += Format("<div><dt>{}</dt><dd><b>{}</b><span>{}</span></dd></div>\n",
                  EscapeHtml(total.name), FormatMiB(total.bytes), EscapeHtml(total.meaning));
  }
  return out + "</dl>\n";
}

// The scripts fill it in; without scripts the tables say the same.
std::string ChartFrame(const std::string& name, size_t number) {
  const std::string id = Format("chart-{}", number);
  const std::string heading =
      name.empty() ? "Memory over time" : Format("{}: memory over time", EscapeHtml(name));
  return Format(
      "<section class=\"card chart\" id=\"{0}\" data-chart=\"{1}\" aria-labelledby=\"{0}-h\">\n"
      "<h2 id=\"{0}-h\">{2}</h2>\n<noscript><p>The chart needs JavaScript; the tables below do "
      "not.</p></noscript>\n</section>\n",
      id, number, heading);
}

std::string PeakFrame(const std::string& name, size_t number) {
  const std::string id = Format("peak-{}", number);
  const std::string heading = name.empty()
                                  ? "What the peak is made of"
                                  : Format("{}: what the peak is made of", EscapeHtml(name));
  return Format(
      "<section class=\"card icicle\" id=\"{0}\" data-peak=\"{1}\" aria-labelledby=\"{0}-h\">\n"
      "<h2 id=\"{0}-h\">{2}</h2>\n</section>\n",
      id, number, heading);
}

// A run's pictures, in a column of their own where runs stand side by side.
struct Pictures {
  std::string name;
  std::string html;
};

std::string Columns(std::vector<Pictures> runs) {
  std::ranges::stable_sort(runs, {}, &Pictures::name);
  std::string out = "<div class=\"columns\">\n";
  for (const Pictures& run : runs) out += Format("<div>\n{}</div>\n", run.html);
  return out + "</div>\n";
}

std::string Charts(const ReportPage& page) {
  std::vector<Pictures> runs;
  size_t chart = 0;
  for (size_t i = 0; i < page.ledgers.size(); ++i) {
    const PageLedger& run = page.ledgers[i];
    runs.push_back({run.name, ChartFrame(run.name, chart++)});
    if (run.ledger->peak_allocated() > Bytes(0)) runs.back().html += PeakFrame(run.name, i);
  }
  for (const PageTimeline& timeline : page.timelines) {
    runs.push_back({timeline.name, ChartFrame(timeline.name, chart++)});
  }
  if (page.side_by_side) return Columns(std::move(runs));
  std::string out;
  for (const Pictures& run : runs) out += run.html;
  return out;
}

std::string Ladder(const ReportPage& page) {
  if (page.ladder.empty()) return "";
  Bytes highest(1);
  for (const PageRung& rung : page.ladder) highest = std::max(highest, rung.bytes);
  std::string out =
      "<section class=\"card ladder\" aria-labelledby=\"ladder-h\">\n"
      "<h2 id=\"ladder-h\">Device memory over the run</h2>\n<table>\n"
      "<caption class=\"unseen\">Device memory over the run</caption>\n"
      "<thead class=\"unseen\"><tr><th scope=\"col\">moment</th><th scope=\"col\">size</th>"
      "<th scope=\"col\">bar</th></tr></thead>\n<tbody>\n";
  for (const PageRung& rung : page.ladder) {
    const double percent = 100.0 * static_cast<double>(std::max(rung.bytes, Bytes(0)).count()) /
                           static_cast<double>(highest.count());
    out += Format(
        "<tr><th scope=\"row\">{}</th><td class=\"num\">{}</td>"
        "<td class=\"bar\" aria-hidden=\"true\"><span style=\"width:{:.2f}%\"></span></td></tr>\n",
        EscapeHtml(rung.name), FormatMiB(rung.bytes), percent);
  }
  return out + "</tbody></table>\n</section>\n";
}

std::string Tables(const ReportPage& page) {
  std::string out;
  size_t number = 0;
  const auto add = [&](const PageTable& table) {
    out += TableHtml(table, Format("table-{}", number++));
  };
  for (const PageTable& table : page.tables) add(table);
  for (const PageLedger& run : page.ledgers) {
    for (const PageTable& table : LedgerTables(run)) add(table);
  }
  return out;
}

std::string Lists(const ReportPage& page) {
  std::string out;
  for (const PageList& list : page.lists) {
    if (list.items.empty()) continue;
    out += Format("<section class=\"card\">\n<h2>{}</h2>\n<ul class=\"list\">\n",
                  EscapeHtml(list.heading));
    for (const std::string& item : list.items) {
      out += Format("<li>{}</li>\n", EscapeHtml(item));
    }
    out += "</ul>\n</section>\n";
  }
  return out;
}

std::string Curves(const ReportPage& page) {
  std::string out;
  for (size_t i = 0; i < page.curves.size(); ++i) {
    out += CurveHtml(page.curves[i], Format("curve-{}", i));
  }
  return out.empty() ? "" : Format("<div class=\"curves\">\n{}</div>\n", out);
}

std::string Foot(const ReportPage& page) {
  return Format(
      "<footer>Written by {}. The page is one file and loads nothing.</footer>\n"
      "<script type=\"application/json\" id=\"headroom-data\">{}</script>\n"
      "<script>\n{}</script>\n</body>\n</html>\n",
      EscapeHtml(page.generator), PageData(page), PageScript());
}

}  // namespace

std::string HtmlReport(const ReportPage& page) {
  return Head(page) + "<body>\n<a class=\"skip\" href=\"#main\">Skip to the report</a>\n" +
         Banner(page) + "<main id=\"main\">\n" + Summary(page) + Totals(page) + Curves(page) +
         Charts(page) + Ladder(page) + Tables(page) + Lists(page) + "</main>\n" + Foot(page);
}

}  // namespace headroom
