#include "headrace/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "headrace/base/text.h"
#include "headrace/base/varint.h"
#include "headrace/checkpoint/section_file.h"
#include "headrace/checkpoint/table_coding.h"

namespace headrace::checkpoint {
namespace {

constexpr SectionFormat kRankFormat = {std::string_view("HRCKR\r\n\x1a", 8), 1, "rank manifest"};
constexpr SectionFormat kFormat = {std::string_view("HRCKM\r\n\x1a", 8), 1, "manifest"};
constexpr size_t kMaxShortText = 65'535;  // of the texts in a SaveInfo

enum SectionType : uint32_t {
  kInfo = 1,
  kTensors = 2,
  kFiles = 3,
  kBoxes = 4,
  kTree = 5,         // rank manifest
  kLoaderState = 6,  // rank manifest
  kTrees = 7,        // manifest
  kLoaderStates = 8,
};
constexpr uint32_t kLastSection = kLoaderStates;

void PutText(std::string_view text, std::string* out) {
  PutVarint(text.size(), out);
  out->append(text);
}
std::string TakeText(RecordCursor* cursor) { return std::string(cursor->Text(cursor->Varint())); }

std::string EncodeInfo(const SaveInfo& info, uint32_t rank) {
  std::string out;
  PutVarint(info.id.step, &out);
  PutVarint(info.id.epoch, &out);
  PutVarint(info.id.attempt, &out);
  PutVarint(info.world_size, &out);
  PutVarint(rank, &out);
  PutVarint(ZigZag(static_cast<uint64_t>(info.started_ns)), &out);
  PutVarint(ZigZag(static_cast<uint64_t>(info.finished_ns)), &out);
  PutText(info.kind, &out);
  PutText(info.dataset_version, &out);
  PutText(info.created_by, &out);
  return out;
}

// What both directions hold it to.
std::string FaultOfInfo(const SaveInfo& info, uint64_t rank) {
  if (info.world_size == 0 || rank >= info.world_size)
    return fmt::format("rank {} of {} ranks", rank, info.world_size);
  if (info.id.attempt == 0) return "attempt 0: they count from 1";
  for (const std::string* text : {&info.kind, &info.dataset_version, &info.created_by})
    if (text->size() > kMaxShortText) return "a text of more than 65,535 bytes";
  return {};
}

Status DecodeInfo(const SectionReader& reader, SaveInfo* info, uint32_t* rank) {
  RecordCursor cursor(reader.Get(kInfo));
  info->id.step = cursor.Varint();
  info->id.epoch = cursor.Varint();
  info->id.attempt = cursor.Varint();
  const uint64_t world_size = cursor.Varint(), stored_rank = cursor.Varint();
  info->started_ns = static_cast<int64_t>(UnZigZag(cursor.Varint()));
  info->finished_ns = static_cast<int64_t>(UnZigZag(cursor.Varint()));
  info->kind = TakeText(&cursor);
  info->dataset_version = TakeText(&cursor);
  info->created_by = TakeText(&cursor);
  if (!cursor.ok() || !cursor.at_end() || world_size > UINT32_MAX)
    return reader.Damaged(kInfo, "it makes no sense");
  info->world_size = static_cast<uint32_t>(world_size);
  if (std::string fault = FaultOfInfo(*info, stored_rank); !fault.empty())
    return reader.Damaged(kInfo, fault);
  *rank = static_cast<uint32_t>(stored_rank);
  return OkStatus();
}

std::string EncodeRankTexts(const RankTexts& texts) {
  std::string out;
  PutVarint(texts.texts.size(), &out);
  for (const std::string& text : texts.texts) PutText(text, &out);
  PutVarint(texts.of_rank.size(), &out);
  for (uint32_t place : texts.of_rank) PutVarint(place, &out);
  return out;
}

Status DecodeRankTexts(const SectionReader& reader, uint32_t type, uint32_t world_size,
                       RankTexts* texts) {
  RecordCursor cursor(reader.Get(type));
  const uint64_t count = cursor.Varint();
  if (!cursor.ok() || count > cursor.left()) return reader.Damaged(type, "too many texts");
  for (uint64_t i = 0; i < count; ++i) texts->texts.push_back(TakeText(&cursor));
  const uint64_t ranks = cursor.Varint();
  if (!cursor.ok() || ranks != world_size || ranks > cursor.left())
    return reader.Damaged(type, "it does not have a text for each rank");
  for (uint64_t i = 0; i < ranks; ++i) {
    const uint64_t place = cursor.Varint();
    if (place >= count) return reader.Damaged(type, fmt::format("rank {} has no text", i));
    texts->of_rank.push_back(static_cast<uint32_t>(place));
  }
  if (!cursor.ok() || !cursor.at_end()) return reader.Damaged(type, "it ends at another place");
  return OkStatus();
}

// The sections that both kinds have.
Status AddTables(const SaveInfo& info, uint32_t rank, const TensorTable& tensors,
                 const std::vector<FileEntry>& files, const BoxTable& boxes,
                 SectionWriter* writer) {
  if (std::string fault = FaultOfInfo(info, rank); !fault.empty())
    return Error(Code::kInvalidArgument, "the save cannot be stored: {}", fault);
  HR_ASSIGN_OR_RETURN(std::string coded_tensors, EncodeTensors(tensors));
  HR_ASSIGN_OR_RETURN(std::string coded_files, EncodeFiles(files));
  HR_ASSIGN_OR_RETURN(std::string coded_boxes, EncodeBoxes(boxes, tensors, files));
  writer->Add(kInfo, true, EncodeInfo(info, rank));
  writer->Add(kTensors, true, std::move(coded_tensors));
  writer->Add(kFiles, true, std::move(coded_files));
  writer->Add(kBoxes, true, std::move(coded_boxes));
  return OkStatus();
}

template <typename AnyManifest>
Status ReadTables(const SectionReader& reader, AnyManifest* manifest) {
  Result<TensorTable> tensors = DecodeTensors(reader.Get(kTensors));
  if (!tensors.ok()) return reader.Damaged(kTensors, tensors.status().message());
  manifest->tensors = *std::move(tensors);
  Result<std::vector<FileEntry>> files = DecodeFiles(reader.Get(kFiles));
  if (!files.ok()) return reader.Damaged(kFiles, files.status().message());
  manifest->files = *std::move(files);
  Result<BoxTable> boxes = DecodeBoxes(reader.Get(kBoxes), manifest->tensors, manifest->files);
  if (!boxes.ok()) return reader.Damaged(kBoxes, boxes.status().message());
  manifest->boxes = *std::move(boxes);
  return OkStatus();
}

// What of Manifest the tables alone do not say. Fills first_box.
std::string FaultOfOrder(const BoxTable& boxes, size_t num_tensors,
                         std::vector<uint64_t>* first_box) {
  first_box->assign(num_tensors + 1, boxes.size());
  uint64_t next = 0;  // the first tensor whose first box is not known
  for (size_t i = 0; i < boxes.size(); ++i) {
    const uint32_t tensor = boxes.entry(i).tensor;
    const BoxView box = boxes.box(i);
    bool behind = true;
    if (i > 0 && boxes.entry(i - 1).tensor == tensor) {
      const Extents before = boxes.box(i - 1).offset;
      behind = std::lexicographical_compare(before.begin(), before.end(), box.offset.begin(),
                                            box.offset.end());
    } else if (i > 0) {
      behind = boxes.entry(i - 1).tensor < tensor;
    }
    if (!behind) return fmt::format("box {} is not behind the one before it", i);
    if (Volume(box.length) == 0) return fmt::format("box {} has no elements", i);
    for (; next <= tensor; ++next) (*first_box)[next] = i;
  }
  return {};
}

std::string FaultOfFiles(const std::vector<FileEntry>& files, uint32_t world_size) {
  std::vector<Hash128> names;
  names.reserve(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    const bool behind = i == 0 || std::tie(files[i - 1].rank, files[i - 1].name) <
                                      std::tie(files[i].rank, files[i].name);
    if (files[i].rank >= world_size || !behind)
      return fmt::format("file {} is not behind the one before it", i);
    names.push_back(files[i].name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) return fmt::format("the file {} is there twice", twice->Hex());
  return {};
}

bool FitsRanks(const RankTexts& texts, uint32_t world_size) {
  return texts.of_rank.size() == world_size &&
         std::all_of(texts.of_rank.begin(), texts.of_rank.end(),
                     [&texts](uint32_t place) { return place < texts.texts.size(); });
}

}  // namespace

std::string SaveId::Text() const {
  return fmt::format("step {}, epoch {}, attempt {}", step, epoch, attempt);
}

uint64_t Manifest::data_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < boxes.size(); ++i) bytes += boxes.entry(i).bytes;
  return bytes;
}

Result<std::string> EncodeRankManifest(const RankManifest& manifest) {
  SectionWriter writer(kRankFormat);
  HR_RETURN_IF_ERROR(AddTables(manifest.info, manifest.rank, manifest.tensors, manifest.files,
                               manifest.boxes, &writer));
  writer.Add(kTree, true, manifest.tree);
  if (!manifest.loader_state.empty()) writer.Add(kLoaderState, false, manifest.loader_state);
  return writer.Finish();
}

Result<std::string> EncodeManifest(const Manifest& manifest) {
  SectionWriter writer(kFormat);
  HR_RETURN_IF_ERROR(
      AddTables(manifest.info, 0, manifest.tensors, manifest.files, manifest.boxes, &writer));
  std::vector<uint64_t> first_box;
  std::string fault = FaultOfOrder(manifest.boxes, manifest.tensors.size(), &first_box);
  if (fault.empty()) fault = FaultOfFiles(manifest.files, manifest.info.world_size);
  if (fault.empty() && !(FitsRanks(manifest.trees, manifest.info.world_size) &&
                         FitsRanks(manifest.loader_states, manifest.info.world_size)))
    fault = "not each rank has a tree and a loader's state";
  if (!fault.empty())
    return Error(Code::kInvalidArgument, "the manifest cannot be stored: {}", fault);
  writer.Add(kTrees, true, EncodeRankTexts(manifest.trees));
  writer.Add(kLoaderStates, true, EncodeRankTexts(manifest.loader_states));
  return writer.Finish();
}

Result<RankManifest> DecodeRankManifest(Bytes bytes, std::string_view name) {
  HR_ASSIGN_OR_RETURN(SectionReader reader,
                      SectionReader::Open(bytes, kRankFormat, kLastSection, name));
  RankManifest manifest;
  HR_RETURN_IF_ERROR(DecodeInfo(reader, &manifest.info, &manifest.rank));
  HR_RETURN_IF_ERROR(ReadTables(reader, &manifest));
  manifest.tree = AsText(reader.Get(kTree));
  manifest.loader_state = AsText(reader.Get(kLoaderState));
  return manifest;
}

Result<Manifest> DecodeManifest(Bytes bytes, std::string_view name) {
  HR_ASSIGN_OR_RETURN(SectionReader reader,
                      SectionReader::Open(bytes, kFormat, kLastSection, name));
  Manifest manifest;
  uint32_t rank = 0;
  HR_RETURN_IF_ERROR(DecodeInfo(reader, &manifest.info, &rank));
  HR_RETURN_IF_ERROR(ReadTables(reader, &manifest));
  std::string fault = FaultOfOrder(manifest.boxes, manifest.tensors.size(), &manifest.first_box);
  if (!fault.empty()) return reader.Damaged(kBoxes, fault);
  fault = FaultOfFiles(manifest.files, manifest.info.world_size);
  if (!fault.empty()) return reader.Damaged(kFiles, fault);
  HR_RETURN_IF_ERROR(DecodeRankTexts(reader, kTrees, manifest.info.world_size, &manifest.trees));
  HR_RETURN_IF_ERROR(
      DecodeRankTexts(reader, kLoaderStates, manifest.info.world_size, &manifest.loader_states));
  return manifest;
}

std::string AttemptPrefix(const SaveId& id) {
  return fmt::format("attempts/{:012}-{:06}-{:04}/", id.step, id.epoch, id.attempt);
}

std::string RankManifestKey(const SaveId& id, uint32_t rank) {
  return fmt::format("{}{:06}.hrckr", AttemptPrefix(id), rank);
}

std::string ManifestKey(const SaveId& id, const Hash128& hash) {
  return fmt::format("manifests/{:012}-{:06}-{:04}-{}.hrckm", id.step, id.epoch, id.attempt,
                     hash.Hex());
}

}  // namespace headrace::checkpoint
