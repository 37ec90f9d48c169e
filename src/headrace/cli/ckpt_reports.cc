#include "headrace/cli/ckpt_reports.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "headrace/base/text.h"

namespace headrace::cli {
namespace {

using checkpoint::TensorDiff;

std::string_view KindText(TensorDiff::Kind kind) {
  switch (kind) {
    case TensorDiff::Kind::kChanged:
      return "changed";
    case TensorDiff::Kind::kOnlyInA:
      return "only in a";
    case TensorDiff::Kind::kOnlyInB:
      return "only in b";
    case TensorDiff::Kind::kOtherType:
      return "other type";
  }
  return "";
}

Json RowJson(const TensorDiff& row) {
  Json json = Json::MakeObject()
                  .Set("path", EscapeText(row.path))
                  .Set("kind", KindText(row.kind))
                  .Set("a", row.a)
                  .Set("b", row.b);
  if (row.kind != TensorDiff::Kind::kChanged) return json;
  json.Set("elements", row.difference.elements).Set("changed", row.difference.changed);
  if (checkpoint::HasMeasure(row.dtype))
    json.Set("not_finite", row.difference.not_finite)
        .Set("max_abs", row.difference.max_abs)
        .Set("relative", row.difference.relative());
  return json;
}

// What stands behind the path.
std::string RowText(const TensorDiff& row) {
  const checkpoint::ElementDifference& difference = row.difference;
  switch (row.kind) {
    case TensorDiff::Kind::kOnlyInA:
      return "only in a: " + row.a;
    case TensorDiff::Kind::kOnlyInB:
      return "only in b: " + row.b;
    case TensorDiff::Kind::kOtherType:
      return row.a + " became " + row.b;
    case TensorDiff::Kind::kChanged:
      break;
  }
  if (!checkpoint::HasMeasure(row.dtype))
    return fmt::format("{}: {} bytes differ", row.a, FormatCount(difference.changed));
  std::string text =
      fmt::format("{}: {} of {} elements, largest difference {:.3g}, relative {:.3g}", row.a,
                  FormatCount(difference.changed), FormatCount(difference.elements),
                  difference.max_abs, difference.relative());
  if (difference.not_finite > 0)
    text += fmt::format(", {} not finite", FormatCount(difference.not_finite));
  return text;
}

}  // namespace

void PrintDiff(const checkpoint::DiffReport& report, const checkpoint::CatalogEntry& a,
               const checkpoint::CatalogEntry& b, Session* session) {
  if (session->json) {
    Json rows = Json::MakeArray();
    for (const TensorDiff& row : report.rows) rows.Append(RowJson(row));
    session->out->Print(Json::MakeObject()
                            .Set("a", a.id.Text())
                            .Set("b", b.id.Text())
                            .Set("same", report.same)
                            .Set("read_bytes", report.read_bytes)
                            .Set("tensors", std::move(rows)));
    return;
  }
  session->out->Print("a: {}\nb: {}\n", a.id.Text(), b.id.Text());
  for (const TensorDiff& row : report.rows) {
    if (session->out->closed()) return;
    session->out->Print("{}  {}\n", EscapeText(row.path), RowText(row));
  }
  session->out->Print("{} tensors differ, {} are the same\n", FormatCount(report.rows.size()),
                      FormatCount(report.same));
}

void PrintImport(const checkpoint::ImportReport& report, Session* session) {
  if (session->json) {
    session->out->Print(Json::MakeObject()
                            .Set("step", report.id.step)
                            .Set("epoch", report.id.epoch)
                            .Set("attempt", report.id.attempt)
                            .Set("files", report.files)
                            .Set("tensors", report.tensors)
                            .Set("bytes", report.bytes)
                            .Set("reused_bytes", report.reused_bytes));
    return;
  }
  session->out->Print("{}: {} tensors of {} files, {}", report.id.Text(),
                      FormatCount(report.tensors), FormatCount(report.files),
                      FormatSize(report.bytes));
  if (report.reused_bytes > 0)
    session->out->Print(" ({} were there already)", FormatSize(report.reused_bytes));
  session->out->Print("\n");
}

void PrintAdvice(const checkpoint::SaveAdvice& advice, Session* session) {
  if (!session->json) {
    session->out->Print("{}", advice.Text());
    return;
  }
  session->out->Print(Json::MakeObject()
                          .Set("saves", static_cast<uint64_t>(advice.measured.saves))
                          .Set("stall_s", advice.measured.stall)
                          .Set("durable_s", advice.measured.durable)
                          .Set("restore_s", advice.measured.restore)
                          .Set("interval_s", advice.interval)
                          .Set("expected_goodput", advice.present_goodput)
                          .Set("advised_interval_s", advice.advice.interval)
                          .Set("advised_steps", advice.advice.steps)
                          .Set("advised_goodput", advice.advice.expected_goodput)
                          .Set("warning", advice.warning)
                          .Set("text", advice.Text()));
}

}  // namespace headrace::cli
