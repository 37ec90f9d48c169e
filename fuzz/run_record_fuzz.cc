// The record of a run, and the page that is made of it: any bytes are read or refused.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "headrace/doctor/diagnose.h"
#include "headrace/doctor/report.h"
#include "headrace/doctor/run_record.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  headrace::doctor::RunRecord record;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!headrace::doctor::ReadRecordLines(text, "fuzz", &record).ok()) return 0;
  (void)headrace::doctor::ReportHtml(record, headrace::doctor::Diagnose(record.run));
  return 0;
}
