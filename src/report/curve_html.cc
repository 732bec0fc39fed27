// SPDX-License-Identifier: Apache-2.0
#include "report/curve_html.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/format.h"
#include "report/html_writer.h"

namespace headroom {
namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 220;
constexpr double kLeft = 84;
constexpr double kBottom = 28;
constexpr double kTop = 12;
// More points than columns show nothing more.
constexpr size_t kMostPoints = 720;

struct Frame {
  double x0 = std::numeric_limits<double>::infinity();
  double x1 = -x0;
  double y0 = x0;
  double y1 = -x0;

  double X(double x) const {
    return kLeft + (x1 > x0 ? (x - x0) / (x1 - x0) : 0.5) * (kWidth - kLeft - 8);
  }
  double Y(double y) const {
    return kTop + (y1 > y0 ? (y1 - y) / (y1 - y0) : 0.5) * (kHeight - kTop - kBottom);
  }
};

bool IsPoint(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

Frame FrameOf(const PageCurve& curve) {
  Frame frame;
  for (const PageCurve::Line& line : curve.lines) {
    for (const auto& point : line.points) {
      if (!IsPoint(point)) continue;
      frame.x0 = std::min(frame.x0, point.first);
      frame.x1 = std::max(frame.x1, point.first);
      frame.y0 = std::min(frame.y0, point.second);
      frame.y1 = std::max(frame.y1, point.second);
    }
  }
  return frame;
}

std::string Path(const PageCurve::Line& line, const Frame& frame) {
  const size_t stride = (line.points.size() + kMostPoints - 1) / kMostPoints;
  std::string path;
  for (size_t i = 0; i < line.points.size(); ++i) {
    const bool shown = i % std::max<size_t>(stride, 1) == 0 || i + 1 == line.points.size();
    if (!shown || !IsPoint(line.points[i])) continue;
    path += Format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", frame.X(line.points[i].first),
                   frame.Y(line.points[i].second));
  }
  return path;
}

std::string Describe(const PageCurve& curve) {
  std::string text = curve.heading;
  for (const PageCurve::Line& line : curve.lines) {
    if (line.points.empty()) continue;
    text += Format("; {}: from {:.4g} at step {:.0f} to {:.4g} at step {:.0f}", line.name,
                   line.points.front().second, line.points.front().first, line.points.back().second,
                   line.points.back().first);
  }
  return text;
}

}  // namespace

std::string CurveHtml(const PageCurve& curve, const std::string& id) {
  const Frame frame = FrameOf(curve);
  if (!(frame.x1 > frame.x0)) return "";
  std::string svg;
  for (int i = 0; i <= 4; ++i) {
    const double y = frame.y0 + (frame.y1 - frame.y0) * i / 4;
    svg += Format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.3g}</text>\n",
        kLeft, kWidth - 8, frame.Y(y), kLeft - 6, frame.Y(y) + 4, y);
  }
  for (const double x : {frame.x0, frame.x1}) {
    svg += Format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">{} {:.0f}</text>\n", frame.X(x),
                  kHeight - 8, x == frame.x0 ? "start" : "end", "step", x);
  }
  std::string legend;
  for (size_t i = 0; i < curve.lines.size(); ++i) {
    svg += Format("<path class=\"curve-{}\" d=\"{}\"/>\n", i % 2, Path(curve.lines[i], frame));
    legend += Format("<li class=\"curve-{}\">{}</li>", i % 2, EscapeHtml(curve.lines[i].name));
  }
  return Format(
      "<section class=\"card curve\" aria-labelledby=\"{0}\">\n<h2 id=\"{0}\">{1}</h2>\n"
      "<svg role=\"img\" aria-label=\"{2}\" viewBox=\"0 0 {3} {4}\">\n{5}</svg>\n"
      "<ul class=\"curve-legend\">{6}</ul>\n</section>\n",
      id, EscapeHtml(curve.heading), EscapeHtml(Describe(curve)), kWidth, kHeight, svg, legend);
}

}  // namespace headroom
