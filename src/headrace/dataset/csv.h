// Rows of a CSV text (RFC 4180): cells between commas, quoted with " when they hold commas, quotes
// (doubled) or line breaks; rows end with LF or CRLF. One owner at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"

namespace headrace::dataset {

class CsvRows {
 public:
  // `text` must outlive this. A byte order mark at its start is skipped.
  explicit CsvRows(std::string_view text);
  // Reads the next row that is not an empty line into `cells`; false at the end. kInvalidArgument
  // names the line when a quote is never closed or text follows a closing quote.
  Result<bool> Next(std::vector<std::string>* cells);
  // The line on which the last row began, from 1.
  uint64_t line() const { return row_line_; }

 private:
  Status ReadQuoted(std::string* cell);
  bool AtLineEnd() const { return at_ == text_.size() || text_[at_] == '\n' || AtCrLf(); }
  bool AtCrLf() const { return text_.substr(at_, 2) == "\r\n"; }
  void SkipLineEnd();

  std::string_view text_;
  size_t at_ = 0;
  uint64_t line_ = 1, row_line_ = 0;
};

}  // namespace headrace::dataset
