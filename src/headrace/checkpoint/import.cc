#include "headrace/checkpoint/import.h"

#include <algorithm>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "headrace/base/json.h"
#include "headrace/base/text.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/checkpoint/parts_writer.h"
#include "headrace/checkpoint/pieces.h"
#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/tensor_path.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kShownFaults = 20;

// What PyTorch calls a type; empty for those that no state holds.
std::string_view TorchName(DType dtype) {
  static const std::map<DType, std::string_view> kNames = {
      {DType::kBool, "bool"},
      {DType::kU8, "uint8"},
      {DType::kI8, "int8"},
      {DType::kF8E5M2, "float8_e5m2"},
      {DType::kF8E4M3, "float8_e4m3fn"},
      {DType::kF8E8M0, "float8_e8m0fnu"},
      {DType::kF8E4M3Fnuz, "float8_e4m3fnuz"},
      {DType::kF8E5M2Fnuz, "float8_e5m2fnuz"},
      {DType::kI16, "int16"},
      {DType::kU16, "uint16"},
      {DType::kF16, "float16"},
      {DType::kBF16, "bfloat16"},
      {DType::kI32, "int32"},
      {DType::kU32, "uint32"},
      {DType::kF32, "float32"},
      {DType::kC64, "complex64"},
      {DType::kF64, "float64"},
      {DType::kI64, "int64"},
      {DType::kU64, "uint64"},
  };
  auto at = kNames.find(dtype);
  return at == kNames.end() ? std::string_view() : at->second;
}

struct Imported {
  SafetensorsEntry entry;
  size_t file = 0;
  std::string path;  // in the state
};

// A part of a tensor: `bytes` from `offset` of a file.
struct Piece {
  size_t tensor = 0;
  Box box;
  uint64_t offset = 0, bytes = 0;
};

// What is read, hashed and written at once.
struct Part {
  std::vector<Piece> pieces;
  uint64_t bytes = 0;
};

Status Faults(const std::vector<std::string>& faults) {
  std::string text;
  for (size_t i = 0; i < faults.size() && i < kShownFaults; ++i)
    text += (i == 0 ? "" : "; ") + faults[i];
  return Error(Code::kInvalidArgument, "{} tensors cannot be imported: {}{}", faults.size(), text,
               faults.size() > kShownFaults ? "; ..." : "");
}

class Import {
 public:
  Import(CatalogStore* store, DataFiles* files, uint64_t epoch, FileSystem* fs,
         const ImportSource& source, const ImportOptions& options, const Context& ctx,
         ImportProgress* progress)
      : store_(store),
        files_(files),
        epoch_(epoch),
        fs_(fs),
        source_(source),
        options_(options),
        ctx_(ctx),
        progress_(progress) {}

  Result<ImportReport> All();

 private:
  Status ReadHeader(size_t file, std::vector<std::string>* faults);
  void AddEntry(SafetensorsEntry entry, size_t file, std::vector<std::string>* faults);
  void CheckNames(std::vector<std::string>* faults) const;
  Status ReadHeaders();
  Status CutIntoParts();
  std::string Tree() const;
  Status WritePart(const Part& part, PartsWriter* writer);

  CatalogStore* const store_;
  DataFiles* const files_;
  const uint64_t epoch_;
  FileSystem* const fs_;
  const ImportSource& source_;
  const ImportOptions& options_;
  const Context& ctx_;
  ImportProgress* const progress_;

  std::vector<std::unique_ptr<RandomAccessFile>> open_;
  std::vector<Imported> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_map<std::string_view, size_t> file_of_;  // as the index says
  std::vector<Part> parts_;
  ImportReport report_;
};

void Import::AddEntry(SafetensorsEntry entry, size_t file, std::vector<std::string>* faults) {
  const std::string shown = EscapeText(entry.name);
  if (!source_.names.empty()) {
    auto at = file_of_.find(entry.name);
    if (at == file_of_.end()) {
      faults->push_back(
          fmt::format("{} is in {} and not in the index", shown, EscapeText(source_.files[file])));
      return;
    }
    if (at->second != file) return;  // the index takes it from another file
  }
  if (TorchName(entry.dtype).empty()) {
    faults->push_back(fmt::format("{} has elements of type {}", shown, DTypeName(entry.dtype)));
    return;
  }
  auto [at, is_new] = by_name_.emplace(entry.name, tensors_.size());
  if (!is_new) {
    faults->push_back(fmt::format("{} is in {} and in {}", shown,
                                  EscapeText(source_.files[tensors_[at->second].file]),
                                  EscapeText(source_.files[file])));
    return;
  }
  Imported imported;
  imported.path = options_.below;
  AppendKey(entry.name, &imported.path);
  imported.file = file;
  report_.bytes += entry.bytes;
  imported.entry = std::move(entry);
  tensors_.push_back(std::move(imported));
}

Status Import::ReadHeader(size_t file, std::vector<std::string>* faults) {
  const std::string& path = source_.files[file];
  HR_ASSIGN_OR_RETURN(auto opened, fs_->OpenForRead(path));
  std::vector<std::byte> head(std::min<uint64_t>(8, opened->size()));
  HR_RETURN_IF_ERROR(opened->ReadAt(0, head, ctx_));
  HR_ASSIGN_OR_RETURN(const uint64_t bytes, SafetensorsHeaderBytes(head, opened->size(), path));
  head.resize(bytes);
  HR_RETURN_IF_ERROR(opened->ReadAt(0, head, ctx_));
  HR_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensors(head, opened->size(), path));
  for (SafetensorsEntry& entry : header.entries) AddEntry(std::move(entry), file, faults);
  open_.push_back(std::move(opened));
  return OkStatus();
}

// Of the index: what no file holds.
void Import::CheckNames(std::vector<std::string>* faults) const {
  for (const auto& [name, file] : source_.names)
    if (!by_name_.contains(name))
      faults->push_back(fmt::format("{} is in the index and not in {}", EscapeText(name),
                                    EscapeText(source_.files[file])));
}

Status Import::ReadHeaders() {
  for (const auto& [name, file] : source_.names) file_of_.emplace(name, file);
  std::vector<std::string> faults;
  for (size_t file = 0; file < source_.files.size(); ++file)
    HR_RETURN_IF_ERROR(ReadHeader(file, &faults));
  if (faults.empty()) CheckNames(&faults);
  if (!faults.empty()) return Faults(faults);
  if (tensors_.empty()) return Error(Code::kInvalidArgument, "there are no tensors to import");
  report_.files = source_.files.size();
  report_.tensors = tensors_.size();
  progress_->total_bytes = report_.bytes;
  return OkStatus();
}

// In the order of the files, so that each is read from its start on.
Status Import::CutIntoParts() {
  parts_.emplace_back();
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    const SafetensorsEntry& entry = tensors_[tensor].entry;
    uint64_t offset = entry.offset;
    auto piece = [&](const Box& box) -> Status {
      const uint64_t bytes = *BytesOf(entry.dtype, *Volume(box.length));
      if (parts_.back().bytes > 0 && parts_.back().bytes + bytes > options_.memory_bytes)
        parts_.emplace_back();
      parts_.back().pieces.push_back({tensor, box, offset, bytes});
      parts_.back().bytes += bytes;
      offset += bytes;
      return OkStatus();
    };
    HR_RETURN_IF_ERROR(ForEachPiece(entry.shape, entry.dtype, options_.memory_bytes, piece));
  }
  return OkStatus();
}

// The state as a tree: nested dicts down to the tensors, as PyTorch tensors.
std::string Import::Tree() const {
  Json::Array leaves, arrays;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Json leaf = Json::MakeObject().Set("a", static_cast<uint64_t>(i)).Set("as", "torch");
    leaves.push_back(Json::Array{Json(tensors_[i].entry.name), std::move(leaf)});
    arrays.push_back(
        Json::MakeObject().Set("p", tensors_[i].path).Set("d", TorchName(tensors_[i].entry.dtype)));
  }
  Json node = Json::MakeObject().Set("d", std::move(leaves));
  std::vector<std::string> keys = SplitPath(options_.below).value();
  for (size_t i = keys.size(); i-- > 0;) {
    Json::Array item{Json(keys[i]), std::move(node)};
    node = Json::MakeObject().Set("d", Json::Array{Json(std::move(item))});
  }
  return Json::MakeObject()
      .Set("format", 1)
      .Set("state", std::move(node))
      .Set("arrays", std::move(arrays))
      .Dump();
}

Status Import::WritePart(const Part& part, PartsWriter* writer) {
  std::vector<std::byte> memory(part.bytes);
  std::vector<MutableBytes> places;
  std::vector<SavedBox> boxes;
  uint64_t at = 0;
  for (const Piece& piece : part.pieces) {
    places.push_back(MutableBytes(memory).subspan(at, piece.bytes));
    at += piece.bytes;
    boxes.push_back({static_cast<uint32_t>(piece.tensor), piece.box, places.back(), false});
  }
  HR_RETURN_IF_ERROR(ForEach(part.pieces.size(), options_.threads, [&](size_t i) -> Status {
    const Piece& piece = part.pieces[i];
    HR_RETURN_IF_ERROR(ctx_.Check());
    return open_[tensors_[piece.tensor].file]->ReadAt(piece.offset, places[i], ctx_);
  }));
  HR_RETURN_IF_ERROR(writer->Write(std::move(boxes), ctx_));
  progress_->bytes += part.bytes;
  return OkStatus();
}

Result<ImportReport> Import::All() {
  HR_RETURN_IF_ERROR(SplitPath(options_.below).status());
  HR_RETURN_IF_ERROR(ReadHeaders());
  HR_RETURN_IF_ERROR(CutIntoParts());
  PartsWriter::What what;
  what.epoch = epoch_;
  what.step = options_.step;
  what.parts = static_cast<uint32_t>(parts_.size());
  for (const Imported& tensor : tensors_)
    what.tensors.Add(tensor.path, tensor.entry.dtype, tensor.entry.shape);
  what.tree = Tree();
  what.created_by = "headrace import";
  what.level = options_.level;
  what.threads = options_.threads;
  HR_ASSIGN_OR_RETURN(PartsWriter writer,
                      PartsWriter::Start(store_, files_, std::move(what), ctx_));
  for (const Part& part : parts_) HR_RETURN_IF_ERROR(WritePart(part, &writer));
  HR_RETURN_IF_ERROR(writer.Publish(ctx_));
  report_.id = writer.id();
  report_.reused_bytes = writer.reused_bytes();
  return report_;
}

}  // namespace

Result<ImportReport> ImportSafetensors(CatalogStore* store, DataFiles* files, uint64_t epoch,
                                       FileSystem* fs, const ImportSource& source,
                                       const ImportOptions& options, const Context& ctx,
                                       ImportProgress* progress) {
  return Import(store, files, epoch, fs, source, options, ctx, progress).All();
}

}  // namespace headrace::checkpoint
