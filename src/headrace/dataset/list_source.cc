// BuildListIndex: a .csv or .jsonl list of files and values.
#include <algorithm>
#include <set>

#include "headrace/base/crc32c.h"
#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/dataset/csv.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/index_data.h"

namespace headrace::dataset {
namespace {

constexpr uint64_t kMaxListBytes = uint64_t{4} << 30;

// One named value of a row.
struct Cell {
  std::string_view column;
  std::string text;
};

// The field that a column of files gives, or "" when its values are not files.
std::string_view FileFieldOf(std::string_view column) {
  if (column == "path" || column == "file") return "file";
  for (std::string_view end : {"_path", "_file"})
    if (column.size() > end.size() && column.ends_with(end))
      return column.substr(0, column.size() - end.size());
  return "";
}

class ListIndexer {
 public:
  ListIndexer(FileSystem* fs, const std::string& list, const BuildOptions& options,
              const Context& ctx)
      : fs_(fs),
        list_(list),
        folder_(DirectoryName(list)),
        options_(options),
        ctx_(ctx),
        builder_(ShardKind::kFiles) {}

  Result<BuiltIndex> Run();

 private:
  Status ReadCsv(std::string_view text);
  Status ReadJsonLines(std::string_view text);
  Status AddJsonRow(std::string_view line, uint64_t line_number);
  Status AddRow(std::vector<Cell>* cells, uint64_t line);
  Status AddFileCell(Cell* cell, std::string_view field);
  Result<std::string> RelativePath(std::string_view text) const;
  std::string KeyOf(const std::vector<Cell>& cells) const;
  Status AtLine(Status status, uint64_t line) const {
    if (status.ok()) return status;
    return std::move(status)
        .Prefix(fmt::format("{}, line {}", list_, line))
        .At({.file = list_, .offset = {}, .key = {}, .field = {}});
  }

  FileSystem* fs_;
  const std::string& list_;
  const std::string folder_;
  const BuildOptions& options_;
  const Context& ctx_;
  IndexBuilder builder_;
  std::vector<IndexBuilder::Field> fields_;
  std::string first_file_;    // of the row being added
  uint64_t total_bytes_ = 0;  // of all files
};

Result<BuiltIndex> ListIndexer::Run() {
  HR_ASSIGN_OR_RETURN(std::string text, fs_->ReadWhole(list_, kMaxListBytes));
  HR_RETURN_IF_ERROR(list_.ends_with(".csv") ? ReadCsv(text) : ReadJsonLines(text));
  if (builder_.num_samples() == 0)
    return Error(Code::kInvalidArgument, "the list {} has no rows: expected {}", list_,
                 list_.ends_with(".csv") ? "a header row and a row for each sample"
                                         : "a JSON object on each line")
        .At({.file = list_, .offset = 0, .key = {}, .field = {}});
  BuiltIndex built;
  built.size_bytes = text.size();
  built.shard_crc32c = Crc32c(AsBytes(text));
  built.num_samples = builder_.num_samples();
  built.fields = builder_.SortedFieldNames();
  HR_ASSIGN_OR_RETURN(built.bytes, builder_.Finish({}));
  if (!options_.reads_data()) return built;
  if (options_.progress) {
    options_.progress->total_samples = built.num_samples;
    options_.progress->total_bytes = total_bytes_;
  }
  HR_ASSIGN_OR_RETURN(IndexWithData data,
                      AddDataOfFiles(std::move(built.bytes), fs_, folder_, options_, ctx_));
  built.bytes = std::move(data.bytes);
  return built;
}

Status ListIndexer::ReadCsv(std::string_view text) {
  CsvRows rows(text);
  std::vector<std::string> header, row;
  std::vector<Cell> cells;
  auto more = rows.Next(&header);
  std::set<std::string> columns(header.begin(), header.end());
  if (more.ok() && (columns.size() != header.size() || columns.count("") > 0))
    return AtLine(Error(Code::kInvalidArgument,
                        "the header row names a column twice or has one without a name"),
                  rows.line());
  while (more.ok() && *more) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    more = rows.Next(&row);
    if (!more.ok() || !*more) break;
    if (row.size() != header.size())
      return AtLine(Error(Code::kInvalidArgument, "the row has {} cells, the header row has {}",
                          row.size(), header.size()),
                    rows.line());
    cells.clear();
    for (size_t i = 0; i < row.size(); ++i) cells.push_back({header[i], std::move(row[i])});
    HR_RETURN_IF_ERROR(AddRow(&cells, rows.line()));
  }
  if (more.ok()) return OkStatus();
  return std::move(more).status().Prefix(list_).At(
      {.file = list_, .offset = {}, .key = {}, .field = {}});
}

Status ListIndexer::ReadJsonLines(std::string_view text) {
  uint64_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    HR_RETURN_IF_ERROR(AddJsonRow(line, line_number));
  }
  return OkStatus();
}

Status ListIndexer::AddJsonRow(std::string_view line, uint64_t line_number) {
  auto row = Json::Parse(line);
  if (!row.ok()) return AtLine(std::move(row).status(), line_number);
  if (!row->is_object())
    return AtLine(
        Error(Code::kInvalidArgument, "expected a JSON object such as {{\"path\": \"a.jpg\"}}"),
        line_number);
  std::vector<Cell> cells;
  for (const auto& [name, value] : row->members()) {
    if (value.is_null()) continue;
    cells.push_back({name, value.is_string() ? std::string(value.AsString()) : value.Dump()});
  }
  return AddRow(&cells, line_number);
}

Status ListIndexer::AddRow(std::vector<Cell>* cells, uint64_t line) {
  fields_.clear();
  first_file_.clear();
  for (Cell& cell : *cells) {
    std::string_view field = FileFieldOf(cell.column);
    if (!field.empty()) {
      if (!cell.text.empty()) HR_RETURN_IF_ERROR(AtLine(AddFileCell(&cell, field), line));
    } else if (cell.column != "key") {
      fields_.push_back({.name = cell.column,
                         .offset = 0,
                         .length = 0,
                         .crc32c = {},
                         .in_index = true,
                         .value = cell.text,
                         .seek_points = {}});
    }
  }
  return AtLine(builder_.Add(KeyOf(*cells), fields_), line);
}

Status ListIndexer::AddFileCell(Cell* cell, std::string_view field) {
  HR_ASSIGN_OR_RETURN(cell->text, RelativePath(cell->text));
  std::string path = JoinPath(folder_, cell->text);
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(path));
  if (info.kind != FileKind::kRegular)
    return Error(Code::kInvalidArgument, "'{}' is not a file", EscapeText(path));
  total_bytes_ += info.size_bytes;
  if (first_file_.empty()) first_file_ = cell->text;
  fields_.push_back({.name = field,
                     .offset = 0,
                     .length = info.size_bytes,
                     .crc32c = {},
                     .in_index = false,
                     .value = cell->text,
                     .seek_points = {}});
  return OkStatus();
}

// Accepts what stays inside the list's folder by its text alone, so that a list from elsewhere
// cannot name other files of this machine.
Result<std::string> ListIndexer::RelativePath(std::string_view text) const {
  std::string_view rest = text;
  if (IsAbsolutePath(folder_) && rest.starts_with(folder_) && rest.size() > folder_.size() &&
      rest[folder_.size()] == '/')
    rest.remove_prefix(folder_.size() + 1);
  while (rest.starts_with("./")) rest.remove_prefix(2);
  HR_RETURN_IF_ERROR(CheckRelativeName(rest));
  return std::string(rest);
}

std::string ListIndexer::KeyOf(const std::vector<Cell>& cells) const {
  for (const Cell& cell : cells)
    if (cell.column == "key") return cell.text;
  if (first_file_.empty()) return fmt::format("{:08}", builder_.num_samples());
  std::string_view key, field;
  return SplitMemberPath(first_file_, &key, &field) ? std::string(key) : first_file_;
}

}  // namespace

Result<BuiltIndex> BuildListIndex(FileSystem* fs, const std::string& list,
                                  const BuildOptions& options, const Context& ctx) {
  return ListIndexer(fs, list, options, ctx).Run();
}

}  // namespace headrace::dataset
