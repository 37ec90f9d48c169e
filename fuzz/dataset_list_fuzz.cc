// Any bytes as the rows of a CSV list: ends, and every byte is read once.
#include "dataset_bytes_file.h"
#include "headrace/dataset/csv.h"

using namespace headrace;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dataset::CsvRows rows(std::string_view(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> cells;
  uint64_t total = 0, last_line = 0;
  while (true) {
    auto more = rows.Next(&cells);
    if (!more.ok() || !*more) break;
    FuzzCheck(!cells.empty() && rows.line() > last_line);
    last_line = rows.line();
    for (const std::string& cell : cells) total += cell.size();
  }
  FuzzCheck(total <= size);
  return 0;
}
