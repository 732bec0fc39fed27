// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "report/html_report.h"
#include "report/html_sections.h"
#include "report/html_writer.h"
#include "report/page_data.h"
#include "report/plan_page.h"
#include "report/timeline.h"

namespace headroom {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

using Json = nlohmann::json;

Ledger RandomLedger(int events, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  Ledger ledger;
  ledger.ChangeReserved(GiB(64));
  ledger.SetContext({{"CUDA context", MiB(520)}});
  std::vector<BlockId> live;
  for (int i = 0; i < events; ++i) {
    if (i % 500 == 499) ledger.Mark(i % 1000 == 499 ? "forward_end" : "backward_end", 1 + i / 1000);
    if (!live.empty() && below(100) < 48) {
      const size_t at = static_cast<size_t>(below(static_cast<int>(live.size())));
      ledger.Free(live[at]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      continue;
    }
    const auto component = static_cast<Component>(below(kAllocatedComponentCount));
    const ModuleId module =
        ledger.InternModule("encoder.layer." + std::to_string(below(12)) + ".dense");
    live.push_back(ledger.Alloc(Bytes(512 * (1 + below(4000))), component, Kind::kMlp, module,
                                ledger.InternOp("aten::addmm")));
  }
  return ledger;
}

std::vector<int64_t> AllocatedAfterEach(const Ledger& ledger) {
  std::vector<int64_t> sizes;
  int64_t now = 0;
  for (const MemoryEvent& event : ledger.events()) {
    if (event.type == MemoryEvent::Type::kAlloc) now += event.bytes;
    if (event.type == MemoryEvent::Type::kFree) now -= event.bytes;
    sizes.push_back(now);
  }
  return sizes;
}

int64_t Allocated(const TimelinePoint& point) {
  int64_t sum = 0;
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    sum += point.components[static_cast<size_t>(i)].count();
  }
  return sum;
}

// ---- Timeline ----

TEST(Timeline, KeepsEveryEventOfAShortRun) {
  const Ledger ledger = RandomLedger(200, 1);
  const std::vector<TimelinePoint> points = BuildTimeline(ledger, 4000);
  const std::vector<int64_t> sizes = AllocatedAfterEach(ledger);
  ASSERT_EQ(points.size(), sizes.size());
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(Allocated(points[i]), sizes[points[i].event]);
    EXPECT_EQ(points[i].components, ledger.ComponentsAt(points[i].event));
  }
}

TEST(Timeline, KeepsThePeakAndValleyOfEveryStretch) {
  const Ledger ledger = RandomLedger(50'000, 2);
  const std::vector<int64_t> sizes = AllocatedAfterEach(ledger);
  constexpr size_t kMost = 1000;
  const std::vector<TimelinePoint> points = BuildTimeline(ledger, kMost);
  EXPECT_LE(points.size(), kMost + 2 * ledger.marks().size() + 2);
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &TimelinePoint::event));
  // Two neighbouring stretches hold every moment between the first one's begin and the second one's
  // end, so what a window of that length reaches is reached by a kept point near it.
  const size_t stretch = (sizes.size() + kMost / 2 - 1) / (kMost / 2);
  for (size_t from = 0; from + stretch <= sizes.size(); from += stretch) {
    const auto [low, high] =
        std::minmax_element(sizes.begin() + static_cast<std::ptrdiff_t>(from),
                            sizes.begin() + static_cast<std::ptrdiff_t>(from + stretch));
    int64_t kept_low = *high;
    int64_t kept_high = *low;
    for (const TimelinePoint& point : points) {
      if (point.event + stretch < from || point.event > from + 2 * stretch) continue;
      kept_low = std::min(kept_low, Allocated(point));
      kept_high = std::max(kept_high, Allocated(point));
    }
    EXPECT_LE(kept_low, *low);
    EXPECT_GE(kept_high, *high);
  }
  EXPECT_TRUE(std::ranges::any_of(points, [&](const TimelinePoint& point) {
    return point.event == ledger.peak_event() &&
           Allocated(point) == ledger.peak_allocated().count();
  }));
}

TEST(Timeline, IsEmptyForAnEmptyLedger) { EXPECT_THAT(BuildTimeline(Ledger(), 100), SizeIs(0)); }

TEST(LargestBlocks, AreTheLargestInOrderOfAllocation) {
  Ledger ledger;
  ledger.ChangeReserved(MiB(10));
  const BlockId small = ledger.Alloc(KiB(1), Component::kInputs, Kind::kOther, {}, {});
  ledger.Alloc(MiB(2), Component::kWeights, Kind::kOther, {}, {});
  ledger.Free(small);
  const BlockId freed = ledger.Alloc(MiB(3), Component::kTemporaries, Kind::kOther, {}, {});
  ledger.Free(freed);
  const std::vector<BlockLife> blocks = LargestBlocks(ledger, 2);
  ASSERT_THAT(blocks, SizeIs(2));
  EXPECT_EQ(blocks[0].from, 2U);
  EXPECT_EQ(blocks[0].to, ledger.events().size());
  EXPECT_EQ(blocks[1].from, 4U);
  EXPECT_EQ(blocks[1].to, 5U);
}

// ---- Text ----

TEST(EscapeHtml, LetsNothingOfAFileThrough) {
  EXPECT_EQ(EscapeHtml("<script>alert('&\"')</script>"),
            "&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;");
  EXPECT_EQ(EscapeHtml("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(EscapeHtml("a\xFF\x1B"
                       "b"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(EscapeHtml("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(WithoutNumbers, LeavesNamesThatHoldDigits) {
  EXPECT_EQ(WithoutNumbers("h.11.mlp"), "h.*.mlp");
  EXPECT_EQ(WithoutNumbers("layer1.0"), "layer1.*");
  EXPECT_EQ(WithoutNumbers(""), "");
}

TEST(TableHtml, CarriesValuesToSortBy) {
  PageTable table;
  table.heading = "A < B";
  table.columns = {"name", "size"};
  table.rows = {{Component::kKvCache, MiB(3)}, {std::string("x"), {}}};
  table.totals = {{std::string("sum"), MiB(3)}};
  const std::string html = TableHtml(table, "t");
  EXPECT_THAT(html, HasSubstr("<h2 id=\"t-h\">A &lt; B</h2>"));
  EXPECT_THAT(
      html,
      HasSubstr(
          "<th scope=\"row\" class=\"of\"><span class=\"swatch c-kv_cache\"></span>kv_cache</th>"
          "<td class=\"num\" data-v=\"3145728\">3.0 MiB</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"num\"></td>"));
  EXPECT_THAT(html, HasSubstr("<tfoot>"));
}

// ---- The page ----

// The page's data as its scripts read it.
Json DataOf(const std::string& html) {
  const std::string open = "id=\"headroom-data\">";
  const size_t begin = html.find(open) + open.size();
  return Json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

int64_t LastOf(const Json& layer, int64_t unit) {
  int64_t sum = 0;
  for (const Json& difference : layer["bytes"]) sum += difference.get<int64_t>();
  return sum * unit;
}

TEST(HtmlReport, HoldsWhatTheLedgerSays) {
  const Ledger ledger = RandomLedger(3000, 3);
  ReportPage page;
  page.kind = "plan";
  page.heading = "model";
  page.ledgers = {{"", &ledger, 1000}};
  const Json data = DataOf(HtmlReport(page));
  EXPECT_EQ(data["format"], "headroom.page");
  const Json& peak = data["peaks"][0];
  EXPECT_EQ(peak["allocated"], ledger.peak_allocated().count());
  EXPECT_EQ(peak["reserved"], ledger.peak_reserved().count());
  const ComponentBytes at_peak = ledger.ComponentsAt(ledger.peak_event());
  for (int i = 0; i < kAllocatedComponentCount; ++i) {
    const auto component = static_cast<size_t>(i);
    EXPECT_EQ(peak["components"][std::string(Name(static_cast<Component>(i)))],
              at_peak[component].count());
    EXPECT_EQ(peak["tree"]["t"][component], at_peak[component].count());
  }
  const Json& chart = data["charts"][0];
  EXPECT_EQ(chart["at"].size(), ledger.events().size());
  const ComponentBytes at_end = ledger.ComponentsAt(ledger.events().size() - 1);
  for (const Json& layer : chart["layers"]) {
    const Component component = *ParseComponent(layer["component"].get<std::string>());
    EXPECT_EQ(LastOf(layer, chart["unit"]), at_end[static_cast<size_t>(component)].count());
  }
}

TEST(HtmlReport, EscapesEverythingItIsGiven) {
  const std::string evil = "</script><img src=x onerror=alert(1)>";
  Ledger ledger;
  ledger.ChangeReserved(MiB(2));
  ledger.Alloc(MiB(1), Component::kWeights, Kind::kOther, ledger.InternModule(evil),
               ledger.InternOp(evil));
  ledger.Mark(evil, 1);
  ReportPage page;
  page.generator = page.kind = page.heading = evil;
  page.facts = {evil};
  page.summary = {{Tone::kBad, evil}};
  page.totals = {{evil, MiB(1), evil}};
  page.ladder = {{evil, MiB(1)}};
  page.limit = PageRung{evil, GiB(1)};
  page.ledgers = {{evil, &ledger, 0}};
  page.timelines = {{evil, {0, 1}, {{evil, {}, {MiB(1), MiB(2)}}}, {{0, 1, evil, 1}}}};
  page.tables = {{evil, evil, {evil}, {{evil}}, {{evil}}}};
  page.lists = {{evil, {evil}}};
  const std::string html = HtmlReport(page);
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  // The data's, and the script's own.
  size_t closings = 0;
  for (size_t at = html.find("</script>"); at != std::string::npos;
       at = html.find("</script>", at + 1)) {
    ++closings;
  }
  EXPECT_EQ(closings, 2U);
  EXPECT_THAT(DataOf(html)["charts"][0]["modules"], Contains(evil));
}

TEST(HtmlReport, StaysSmallHoweverLongTheRun) {
  const Ledger ledger = RandomLedger(300'000, 4);
  ReportPage page;
  page.ledgers = {{"", &ledger, 0}};
  EXPECT_LT(HtmlReport(page).size(), size_t{1} << 20);
}

TEST(HtmlReport, TakesAnEmptyLedger) {
  const Ledger ledger;
  ReportPage page;
  page.ledgers = {{"", &ledger, 0}};
  const std::string html = HtmlReport(page);
  EXPECT_THAT(html, HasSubstr("data-chart=\"0\""));
  EXPECT_THAT(html, Not(HasSubstr("id=\"peak-0\"")));
}

TEST(HtmlReport, ShowsTwoRunsUnderTheirNames) {
  const Ledger before = RandomLedger(100, 5);
  const Ledger after = RandomLedger(100, 6);
  ReportPage page;
  page.ledgers = {{"before", &before, 0}, {"after", &after, 0}};
  const std::string html = HtmlReport(page);
  EXPECT_THAT(html, HasSubstr("before: memory over time"));
  EXPECT_THAT(html, HasSubstr("after: what the peak is made of"));
  EXPECT_THAT(DataOf(html)["charts"], SizeIs(2));
}

TEST(HtmlReport, DrawsWhatWasSampledOverTime) {
  ReportPage page;
  page.timelines = {{"GPU 0",
                     {0, 0.1, 0.2},
                     {{"this command", Component::kActivations, {MiB(1), MiB(9), MiB(2)}}},
                     {}}};
  const Json chart = DataOf(HtmlReport(page))["charts"][0];
  EXPECT_EQ(chart["axis"], "seconds");
  EXPECT_EQ(chart["peak"], 1);
  EXPECT_THAT(chart["at"].get<std::vector<int>>(), ElementsAre(0, 100, 100));
}

TEST(PlanPage, SaysTheVerdictFirst) {
  const Ledger ledger = RandomLedger(300, 7);
  PlanHeader header;
  header.model = "model";
  header.parameters = 10;
  header.trainable = 5;
  header.verdict = Verdict{.fits = false,
                           .tight = false,
                           .gpu = "T4",
                           .memory = GiB(15),
                           .cap = GiB(14),
                           .needed = GiB(20),
                           .failure = {}};
  const PlanReport report = BuildPlanReport(ledger, header);
  const ReportPage page = PlanPage(report, ledger, "headroom 1");
  EXPECT_EQ(page.summary[0].tone, Tone::kBad);
  EXPECT_THAT(page.summary[0].text, HasSubstr("Does not fit on the T4"));
  EXPECT_EQ(page.limit->bytes, GiB(15));
  EXPECT_THAT(page.totals, SizeIs(3));
  EXPECT_THAT(page.facts, ElementsAre("10 parameters", "5 trained"));
}

}  // namespace
}  // namespace headroom
