// Metrics as text: Prometheus' exposition format, and the reference page. Pure functions.
#pragma once

#include <span>
#include <string>

#include "headrace/base/json.h"
#include "headrace/base/metrics.h"
#include "headrace/base/process_snapshot.h"

namespace headrace {

// The Content-Type of PrometheusText.
inline constexpr std::string_view kPrometheusContentType = "text/plain; version=0.0.4";

// All metrics of these processes in Prometheus' text format. Each sample has the labels "run" (the
// job's name; "job" is Prometheus' own) and "rank"; with several processes also "pid", since two of
// a rank may run. Label sets are bounded: nothing of a data set or a request is in them.
std::string PrometheusText(std::span<const ProcessSnapshot> processes);

// The same as a node's agent tells it: "pid" is always there, so that a process keeps its labels
// when others come and go; then the values of `node`, of scope kNode, which have no label of a
// process.
std::string NodePrometheusText(std::span<const ProcessSnapshot> processes,
                               std::span<const MetricValue> node);

// The table of all metrics in Markdown.
std::string MetricsReference();

// The same for programs: an array of {"name", "kind", "unit", "labels": [...], "help"}. The labels
// "run" and "rank", which all have, are not listed.
Json MetricsReferenceJson();

}  // namespace headrace
