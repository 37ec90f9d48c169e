#include "headrace/dataset/csv.h"

namespace headrace::dataset {

CsvRows::CsvRows(std::string_view text) : text_(text) {
  if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
}

void CsvRows::SkipLineEnd() {
  if (at_ == text_.size()) return;
  at_ += text_[at_] == '\n' ? 1 : 2;
  ++line_;
}

Status CsvRows::ReadQuoted(std::string* cell) {
  for (++at_; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') {
      cell->push_back(text_[at_]);
    } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      cell->push_back(text_[at_++]);
    } else {
      ++at_;
      if (AtLineEnd() || text_[at_] == ',') return OkStatus();
      return Error(Code::kInvalidArgument,
                   "line {}: text after a closing quote; expected a comma or the end of the line",
                   line_);
    }
  }
  return Error(Code::kInvalidArgument, "line {}: a quote is opened and never closed", row_line_);
}

Result<bool> CsvRows::Next(std::vector<std::string>* cells) {
  cells->clear();
  while (at_ < text_.size() && AtLineEnd()) SkipLineEnd();
  if (at_ == text_.size()) return false;
  row_line_ = line_;
  while (true) {
    std::string& cell = cells->emplace_back();
    if (at_ < text_.size() && text_[at_] == '"') {
      HR_RETURN_IF_ERROR(ReadQuoted(&cell));
    } else {
      while (!AtLineEnd() && text_[at_] != ',') cell.push_back(text_[at_++]);
    }
    if (AtLineEnd()) break;
    ++at_;  // the comma
  }
  SkipLineEnd();
  return true;
}

}  // namespace headrace::dataset
