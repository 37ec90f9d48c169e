// BuildFolderIndex: a folder of files, as ImageFolder sees it.
#include <algorithm>

#include "headrace/base/text.h"
#include "headrace/dataset/index_build.h"
#include "headrace/dataset/index_data.h"

namespace headrace::dataset {
namespace {

constexpr std::string_view kLabelField = "cls";
constexpr size_t kMaxDepth = 256;

class FolderIndexer {
 public:
  FolderIndexer(FileSystem* fs, const std::string& root, const BuildOptions& options,
                const Context& ctx)
      : fs_(fs), root_(root), options_(options), ctx_(ctx), builder_(ShardKind::kFiles) {}

  Result<BuiltIndex> Run();

 private:
  // What lies in one folder: names relative to the root, in byte order.
  struct Content {
    std::vector<std::string> folders;
    std::vector<std::pair<std::string, uint64_t>> files;  // with sizes
  };
  struct Visited {  // a folder on the way from the root to here
    uint64_t device, inode;
  };

  std::string FullPath(const std::string& below) const { return JoinPath(root_, below); }
  void Skip(const std::string& below) {
    if (built_.num_skipped++ == 0) built_.first_skipped = below;
  }
  Result<Content> List(const std::string& below);
  Status Sort(const std::string& below, FileKind kind, Content* content);
  Status RefuseFolderOfTars() const;
  Status Walk(const std::string& below);
  Status AddSamples(const Content& content);
  void AddFile(const std::string& below, uint64_t size_bytes, std::string_view field);
  Status ReadData();
  Status FlushSample();

  FileSystem* fs_;
  const std::string& root_;
  const BuildOptions& options_;
  const Context& ctx_;
  IndexBuilder builder_;
  BuiltIndex built_;
  uint64_t total_bytes_ = 0;  // of all files
  std::vector<Visited> above_;
  std::string label_;  // of the class being walked; empty: no classes
  std::string key_;
  std::vector<IndexBuilder::Field> fields_;  // of the sample with key_; views into a Content
};

Result<BuiltIndex> FolderIndexer::Run() {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(root_));
  above_.push_back({info.device, info.inode});
  HR_ASSIGN_OR_RETURN(Content content, List(""));
  for (size_t i = 0; i < content.folders.size(); ++i) {
    label_ = std::to_string(i);
    HR_RETURN_IF_ERROR(Walk(content.folders[i]));
  }
  if (content.folders.empty()) {
    HR_RETURN_IF_ERROR(AddSamples(content));
  } else {
    for (const auto& file : content.files) Skip(file.first);
  }
  if (builder_.num_samples() == 0)
    return Error(
               Code::kInvalidArgument,
               "no samples in the folder {}: expected files like CLASS/NAME.jpg or NAME.jpg, found "
               "{} class folders and {} files that are none of these{}{}",
               root_, content.folders.size(), built_.num_skipped,
               built_.num_skipped ? ", first " : "", EscapeText(built_.first_skipped))
        .At({.file = root_, .offset = {}, .key = {}, .field = {}});
  HR_RETURN_IF_ERROR(RefuseFolderOfTars());
  built_.classes = std::move(content.folders);
  built_.num_samples = builder_.num_samples();
  built_.fields = builder_.SortedFieldNames();
  HR_ASSIGN_OR_RETURN(built_.bytes, builder_.Finish({}));
  if (options_.reads_data()) HR_RETURN_IF_ERROR(ReadData());
  return std::move(built_);
}

Status FolderIndexer::ReadData() {
  if (options_.progress) {
    options_.progress->total_samples = built_.num_samples;
    options_.progress->total_bytes = total_bytes_;
  }
  HR_ASSIGN_OR_RETURN(IndexWithData data,
                      AddDataOfFiles(std::move(built_.bytes), fs_, root_, options_, ctx_));
  built_.bytes = std::move(data.bytes);
  return OkStatus();
}

// Tars in sub-folders would be read as samples that are a tar each: never what is meant.
Status FolderIndexer::RefuseFolderOfTars() const {
  std::vector<std::string> fields = builder_.SortedFieldNames();
  std::erase(fields, kLabelField);
  if (fields != std::vector<std::string>{"tar"}) return OkStatus();
  return Error(Code::kInvalidArgument,
               "the folder {} has tars in folders below it: open one of these folders, or make one "
               "dataset of all tars with `headrace index TARS... --output FOLDER`",
               root_)
      .At({.file = root_, .offset = {}, .key = {}, .field = {}});
}

Result<FolderIndexer::Content> FolderIndexer::List(const std::string& below) {
  HR_RETURN_IF_ERROR(ctx_.Check());
  HR_ASSIGN_OR_RETURN(auto entries, fs_->List(below.empty() ? root_ : FullPath(below)));
  Content content;
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.front() == '.') continue;
    HR_RETURN_IF_ERROR(
        Sort(below.empty() ? entry.name : JoinPath(below, entry.name), entry.kind, &content));
  }
  return content;
}

Status FolderIndexer::Sort(const std::string& below, FileKind kind, Content* content) {
  if (kind == FileKind::kDirectory) {
    content->folders.push_back(below);
    return OkStatus();
  }
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(FullPath(below)));
  if (info.kind == FileKind::kDirectory)
    content->folders.push_back(below);
  else if (info.kind == FileKind::kRegular)
    content->files.emplace_back(below, info.size_bytes);
  else
    Skip(below);
  return OkStatus();
}

Status FolderIndexer::Walk(const std::string& below) {
  HR_ASSIGN_OR_RETURN(FileInfo info, fs_->Stat(FullPath(below)));
  for (const Visited& folder : above_) {
    if (folder.device != info.device || folder.inode != info.inode) continue;
    Skip(below);  // a link to a folder above it
    return OkStatus();
  }
  if (above_.size() > kMaxDepth)
    return Error(Code::kInvalidArgument, "{} is nested deeper than {} folders", FullPath(below),
                 kMaxDepth);
  above_.push_back({info.device, info.inode});
  HR_ASSIGN_OR_RETURN(Content content, List(below));
  HR_RETURN_IF_ERROR(AddSamples(content));
  for (const std::string& folder : content.folders) HR_RETURN_IF_ERROR(Walk(folder));
  above_.pop_back();
  return OkStatus();
}

// Adds the files of one folder. Files with the same key stand together, since they are sorted and
// all begin with the key and a dot.
Status FolderIndexer::AddSamples(const Content& content) {
  for (const auto& [below, size_bytes] : content.files) {
    std::string_view key, field;
    if (!SplitMemberPath(below, &key, &field)) {
      Skip(below);
      continue;
    }
    if (!fields_.empty() && key != key_) HR_RETURN_IF_ERROR(FlushSample());
    key_ = key;
    AddFile(below, size_bytes, field);
  }
  return FlushSample();
}

void FolderIndexer::AddFile(const std::string& below, uint64_t size_bytes, std::string_view field) {
  total_bytes_ += size_bytes;
  fields_.push_back({.name = field,
                     .offset = 0,
                     .length = size_bytes,
                     .crc32c = {},
                     .in_index = false,
                     .value = below,
                     .seek_points = {}});
}

Status FolderIndexer::FlushSample() {
  if (fields_.empty()) return OkStatus();
  bool has_label = std::any_of(fields_.begin(), fields_.end(),
                               [](const auto& field) { return field.name == kLabelField; });
  if (!label_.empty() && !has_label)
    fields_.push_back({.name = kLabelField,
                       .offset = 0,
                       .length = label_.size(),
                       .crc32c = {},
                       .in_index = true,
                       .value = label_,
                       .seek_points = {}});
  Status added = builder_.Add(key_, fields_);
  fields_.clear();
  return std::move(added).At({.file = root_, .offset = {}, .key = key_, .field = {}});
}

}  // namespace

Result<BuiltIndex> BuildFolderIndex(FileSystem* fs, const std::string& folder,
                                    const BuildOptions& options, const Context& ctx) {
  return FolderIndexer(fs, folder, options, ctx).Run();
}

}  // namespace headrace::dataset
