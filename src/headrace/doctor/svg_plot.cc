#include "headrace/doctor/svg_plot.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "headrace/base/text.h"

namespace headrace::doctor {
namespace {

constexpr double kWidth = 720, kHeight = 200, kLeft = 64, kRight = 12, kTop = 12, kBottom = 28;
constexpr size_t kMostSeries = 8;

double PlotWidth() { return kWidth - kLeft - kRight; }
double PlotHeight() { return kHeight - kTop - kBottom; }

double Greatest(const std::vector<Series>& series) {
  double most = 0;
  for (const Series& one : series)
    for (double value : one.values)
      if (std::isfinite(value)) most = std::max(most, value);
  return most;
}

// The next of 1, 2, 5, 10, 20... that is not below `value`.
double RoundUp(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (double step : {1.0, 2.0, 5.0, 10.0})
    if (step * power >= value * (1 - 1e-9)) return step * power;
  return 10 * power;
}

std::string ValueText(double value, const std::string& unit) {
  if (unit == "%") return fmt::format("{:.0f} %", value * 100);
  if (value >= 1e6) return fmt::format("{:.3g}M", value * 1e-6);
  if (value >= 1e4) return fmt::format("{:.3g}k", value * 1e-3);
  return fmt::format("{:.3g}", value);
}

std::string TimeText(double seconds) {
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

double X(size_t point, size_t points) {
  return kLeft + PlotWidth() * (static_cast<double>(point) + 0.5) /
                     static_cast<double>(std::max<size_t>(points, 1));
}

double Y(double value, double top) {
  return kTop + PlotHeight() * (1 - std::clamp(value / top, 0.0, 1.0));
}

std::string Axes(const PlotFrame& frame, double top) {
  std::string svg;
  constexpr int kLines = 4;
  for (int i = 0; i <= kLines; ++i) {
    const double value = top * i / kLines;
    const double y = Y(value, top);
    svg += fmt::format(
        "<line x1='{:.1f}' x2='{:.1f}' y1='{:.1f}' y2='{:.1f}' class='grid'/>"
        "<text x='{:.1f}' y='{:.1f}' class='tick' text-anchor='end'>{}</text>",
        kLeft, kWidth - kRight, y, y, kLeft - 6, y + 4, ValueText(value, frame.unit));
  }
  for (int i = 0; i <= kLines; ++i) {
    const double x = kLeft + PlotWidth() * i / kLines;
    const double at = frame.from_s + (frame.to_s - frame.from_s) * i / kLines;
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='tick' text-anchor='{}'>{}</text>", x,
                       kHeight - 8, i == kLines ? "end" : "middle", TimeText(at));
  }
  return svg;
}

// What the plot says in words: each series' least, mean and greatest value.
std::string Words(const PlotFrame& frame, const std::vector<Series>& series) {
  std::string words = frame.title + ".";
  for (const Series& one : series) {
    double sum = 0, least = HUGE_VAL, most = -HUGE_VAL;
    size_t count = 0;
    for (double value : one.values) {
      if (!std::isfinite(value)) continue;
      sum += value;
      least = std::min(least, value);
      most = std::max(most, value);
      ++count;
    }
    if (count == 0) continue;
    words += fmt::format(" {}: {} to {}, mean {}.", one.name, ValueText(least, frame.unit),
                         ValueText(most, frame.unit),
                         ValueText(sum / static_cast<double>(count), frame.unit));
  }
  return words;
}

std::string Figure(const PlotFrame& frame, const std::vector<Series>& series, double height,
                   const std::string& content, bool legend) {
  std::string html = fmt::format(
      "<figure><figcaption>{}{}</figcaption><svg viewBox='0 0 {:.0f} {:.0f}' role='img' "
      "aria-label='{}'>{}</svg>",
      HtmlText(frame.title),
      frame.unit.empty() || frame.unit == "%" ? "" : ", " + HtmlText(frame.unit), kWidth, height,
      HtmlText(Words(frame, series)), content);
  if (legend) {
    html += "<ul class='legend'>";
    for (size_t i = 0; i < series.size(); ++i)
      html += fmt::format("<li><i style='background:var(--c{})'></i>{}</li>", i,
                          HtmlText(series[i].name));
    html += "</ul>";
  }
  return html + "</figure>\n";
}

std::vector<Series> AtMost(const std::vector<Series>& series, size_t most) {
  return {series.begin(), series.begin() + static_cast<int64_t>(std::min(series.size(), most))};
}

}  // namespace

std::string HtmlText(std::string_view text) {
  std::string html;
  for (char c : EscapeText(text)) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string LinePlot(const PlotFrame& frame, const std::vector<Series>& all) {
  // Dashes tell the lines apart for those who do not see the colours.
  constexpr const char* kDashes[kMostSeries] = {"",    "6 3",      "2 3",     "8 3 2 3",
                                                "1 2", "10 4 3 4", "4 2 1 2", "12 3"};
  const std::vector<Series> series = AtMost(all, kMostSeries);
  const double top = frame.unit == "%" ? 1 : RoundUp(Greatest(series));
  std::string svg = Axes(frame, top);
  for (size_t i = 0; i < series.size(); ++i) {
    std::string path;
    bool pen_down = false;
    for (size_t p = 0; p < series[i].values.size(); ++p) {
      const double value = series[i].values[p];
      if (!std::isfinite(value)) {
        pen_down = false;
        continue;
      }
      path += fmt::format("{}{:.1f} {:.1f}", pen_down ? "L" : "M", X(p, series[i].values.size()),
                          Y(value, top));
      pen_down = true;
    }
    svg += fmt::format(
        "<path d='{}' fill='none' stroke='var(--c{})' stroke-width='1.8' "
        "stroke-dasharray='{}'/>",
        path, i, kDashes[i]);
  }
  return Figure(frame, series, kHeight, svg, true);
}

std::string StackPlot(const PlotFrame& frame, const std::vector<Series>& all) {
  const std::vector<Series> series = AtMost(all, kMostSeries);
  if (series.empty()) return "";
  const size_t points = series.front().values.size();
  std::vector<double> below(points, 0.0);
  std::vector<std::vector<double>> tops;
  for (const Series& one : series) {
    std::vector<double> top = below;
    for (size_t p = 0; p < std::min(points, one.values.size()); ++p)
      if (std::isfinite(one.values[p])) top[p] += std::max(0.0, one.values[p]);
    tops.push_back(top);
    below = top;
  }
  double most = 0;
  for (double value : below) most = std::max(most, value);
  const double top = frame.unit == "%" ? 1 : RoundUp(most);
  std::string svg;
  for (size_t i = 0; i < series.size() && points > 0; ++i) {
    std::string path;
    for (size_t p = 0; p < points; ++p)
      path += fmt::format("{}{:.1f} {:.1f}", p == 0 ? "M" : "L", X(p, points), Y(tops[i][p], top));
    for (size_t p = points; p-- > 0;)
      path += fmt::format("L{:.1f} {:.1f}", X(p, points), Y(i == 0 ? 0 : tops[i - 1][p], top));
    svg += fmt::format(
        "<path d='{}Z' fill='var(--c{})' stroke='var(--paper)' "
        "stroke-width='0.6'/>",
        path, i);
  }
  return Figure(frame, series, kHeight, svg + Axes(frame, top), true);
}

std::string HeatMap(const PlotFrame& frame, const std::vector<Series>& rows) {
  constexpr size_t kMostRows = 128;
  constexpr double kRow = 14;
  const std::vector<Series> shown = AtMost(rows, kMostRows);
  const double height = kTop + kRow * static_cast<double>(shown.size()) + kBottom;
  std::string svg;
  for (size_t r = 0; r < shown.size(); ++r) {
    const double y = kTop + kRow * static_cast<double>(r);
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='tick' text-anchor='end'>{}</text>",
                       kLeft - 6, y + kRow - 4, HtmlText(shown[r].name));
    const size_t points = shown[r].values.size();
    const double width = PlotWidth() / static_cast<double>(std::max<size_t>(points, 1));
    for (size_t p = 0; p < points; ++p) {
      const double value = shown[r].values[p];
      if (!std::isfinite(value)) continue;
      svg += fmt::format(
          "<rect x='{:.1f}' y='{:.1f}' width='{:.2f}' height='{:.1f}' "
          "fill='var(--c1)' fill-opacity='{:.2f}'/>",
          kLeft + width * static_cast<double>(p), y, width, kRow - 1, std::clamp(value, 0.02, 1.0));
    }
  }
  for (int i = 0; i <= 4; ++i)
    svg += fmt::format("<text x='{:.1f}' y='{:.1f}' class='tick' text-anchor='{}'>{}</text>",
                       kLeft + PlotWidth() * i / 4, height - 8, i == 4 ? "end" : "middle",
                       TimeText(frame.from_s + (frame.to_s - frame.from_s) * i / 4));
  return Figure(frame, shown, height, svg, false);
}

}  // namespace headrace::doctor
