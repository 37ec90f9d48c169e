// Plots as SVG text that stands inside an HTML page: colours are the page's variables (--c0 to
// --c7,
// --ink, --line), so that they follow light and dark. Each plot says in words what it shows, for
// those who cannot see it. Pure functions, safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace::doctor {

// Text as it may stand in HTML, in elements and attributes: & < > " ' are written as references,
// control characters and what is not UTF-8 as EscapeText does.
std::string HtmlText(std::string_view text);

struct Series {
  std::string name;
  std::vector<double> values;  // one for each point in time; NaN: a gap
};

struct PlotFrame {
  std::string title;
  std::string unit;             // of the values; "%": they are shares, shown from 0 to 100
  double from_s = 0, to_s = 0;  // the time that the points are spread over evenly
};

// At most 8 series; more are left out.
std::string LinePlot(const PlotFrame& frame, const std::vector<Series>& series);
// The series on top of each other.
std::string StackPlot(const PlotFrame& frame, const std::vector<Series>& series);
// One row of cells for each series, darker for more; `unit` is "%".
std::string HeatMap(const PlotFrame& frame, const std::vector<Series>& rows);

}  // namespace headrace::doctor
