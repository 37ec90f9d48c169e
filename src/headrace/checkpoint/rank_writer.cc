#include "headrace/checkpoint/rank_writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "headrace/checkpoint/box_hasher.h"
#include "headrace/checkpoint/chunk_sums.h"
#include "headrace/checkpoint/parallel.h"
#include "headrace/checkpoint/safetensors.h"
#include "headrace/checkpoint/tensor_path.h"
#include "headrace/env/process.h"

namespace headrace::checkpoint {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTurnBytes = uint64_t{4} << 20;  // a thread hashes at least so much at a time

// Adds the time since it was made.
class Timer {
 public:
  explicit Timer(uint64_t* ns) : ns_(ns) {}
  ~Timer() {
    *ns_ += static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start_).count());
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  uint64_t* const ns_;
  const Clock::time_point start_ = Clock::now();
};

Status CheckBox(const RankSave& save, const SavedBox& box) {
  if (box.tensor >= save.tensors.size())
    return Error(Code::kInvalidArgument, "a box names tensor {} of {}", box.tensor,
                 save.tensors.size());
  auto volume = Volume(box.box.length);
  auto bytes = volume ? BytesOf(save.tensors.dtype(box.tensor), *volume) : std::nullopt;
  if (!FitsInto(box.box, save.tensors.shape(box.tensor)) || !bytes || *bytes != box.data.size())
    return Error(Code::kInvalidArgument, "the box {} of {} bytes does not fit {}, {} {}",
                 BoxText(box.box), box.data.size(), save.tensors.path(box.tensor),
                 DTypeName(save.tensors.dtype(box.tensor)),
                 ShapeText(save.tensors.shape(box.tensor)));
  return OkStatus();
}

// Boxes of the checkpoint before by what they hold: whoever has the same tensor, box and bytes.
class BoxesBefore {
 public:
  explicit BoxesBefore(const Manifest& before) : before_(before) {}

  std::optional<size_t> Find(std::string_view path, DType dtype, BoxView box,
                             const Hash128& hash) const {
    auto tensor = before_.FindTensor(path);
    if (!tensor || before_.tensors.dtype(*tensor) != dtype) return std::nullopt;
    for (uint64_t i = before_.first_box[*tensor]; i < before_.first_box[*tensor + 1]; ++i)
      if (before_.boxes.entry(i).hash == hash && SameBox(before_.boxes.box(i), box)) return i;
    return std::nullopt;
  }

 private:
  const Manifest& before_;
};

// Hashes a few of a box's bytes: where these differ the boxes do.
class Sampler {
 public:
  Hash128 Of(Bytes box) {
    if (box.size() <= 3 * kBytes) return HashOf(box);
    stream_.Reset();
    stream_.Update(box.first(kBytes));
    stream_.Update(box.subspan(box.size() / 2, kBytes));
    stream_.Update(box.last(kBytes));
    return stream_.Get();
  }

 private:
  static constexpr size_t kBytes = 1024;
  HashStream stream_;
};

struct Hashed {
  BoxSums sums;
  std::optional<size_t> before;  // the box of the checkpoint before that has the same bytes
};

// One file: boxes one behind the other.
struct Group {
  std::vector<size_t> boxes;
  WrittenHeader header;
  std::vector<PartSums> sums;  // of the boxes, once they are hashed

  uint64_t bytes() const { return header.file_bytes; }
};

// One save.
class Writing {
 public:
  Writing(DataFiles* files, const WriteOptions& options, const RankSave& save,
          const Manifest* before, const Context& ctx, WriteReport* report)
      : files_(files),
        options_(options),
        save_(save),
        before_(before),
        ctx_(ctx),
        report_(report) {}

  // `samples`: of the boxes of the last save, if there was one; becomes those of this save.
  Result<RankManifest> All(std::vector<Hash128>* samples);

 private:
  Status CheckBoxes() const;
  void AddTensors();
  void Part(std::vector<Hash128>* samples, std::vector<size_t>* fresh,
            std::vector<size_t>* unsure) const;
  Result<std::vector<Group>> Deal(const std::vector<size_t>& boxes) const;
  Result<Group> MakeGroup(std::vector<size_t> boxes) const;
  Status EntryNames(const std::vector<size_t>& boxes, std::vector<std::string>* names) const;
  void HashGroup(Group* group);
  Status LookAt(std::vector<Group> groups, std::vector<Group>* to_write);
  void FindUnchanged(const std::vector<Group>& groups);
  void AddUnchanged(size_t i);
  Status WriteGroups(std::vector<Group>* groups);
  Status WriteGroup(Group* group);
  std::string SumUp(const Group& group, FileEntry* file) const;
  void AddFile(const Group& group, const FileEntry& file);
  Status HandIn();

  DataFiles* const files_;
  const WriteOptions& options_;
  const RankSave& save_;
  const Manifest* const before_;
  const Context& ctx_;
  WriteReport* const report_;

  std::vector<Hashed> hashed_;
  std::vector<uint32_t> numbers_;         // of the save's tensors in the manifest
  std::map<uint32_t, uint32_t> carried_;  // files of the checkpoint before: their numbers here
  RankManifest manifest_;
};

Status Writing::CheckBoxes() const {
  for (const SavedBox& box : save_.boxes) {
    HR_RETURN_IF_ERROR(CheckBox(save_, box));
    ++report_->boxes;
    report_->bytes += box.data.size();
  }
  return OkStatus();
}

// In a manifest paths ascend.
void Writing::AddTensors() {
  std::vector<uint32_t> order(save_.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return save_.tensors.path(a) < save_.tensors.path(b); });
  numbers_.resize(order.size());
  for (uint32_t tensor : order)
    numbers_[tensor] = manifest_.tensors.Add(
        save_.tensors.path(tensor), save_.tensors.dtype(tensor), save_.tensors.shape(tensor));
}

// Boxes that have surely changed are hashed while they are written. All others are hashed first:
// perhaps they need not be written. Of a box without elements nothing is stored; its tensor is in
// the table.
void Writing::Part(std::vector<Hash128>* samples, std::vector<size_t>* fresh,
                   std::vector<size_t>* unsure) const {
  const bool all_new = before_ == nullptr || !options_.reuse;
  const bool known = samples->size() == save_.boxes.size();
  samples->resize(save_.boxes.size());
  Sampler sampler;
  for (size_t i = 0; i < save_.boxes.size(); ++i) {
    if (save_.boxes[i].data.empty()) continue;
    const Hash128 sample = sampler.Of(save_.boxes[i].data);
    const Hash128 last = std::exchange((*samples)[i], sample);
    (all_new || (known && sample != last) ? fresh : unsure)->push_back(i);
  }
}

// Deals boxes to files: each top-level key of the state has its own.
Result<std::vector<Group>> Writing::Deal(const std::vector<size_t>& boxes) const {
  struct Open {
    std::vector<size_t> boxes;
    uint64_t bytes = 0;
  };
  std::map<std::string, Open> open;
  std::vector<Group> groups;
  for (size_t i : boxes) {
    const SavedBox& box = save_.boxes[i];
    HR_ASSIGN_OR_RETURN(std::string key, GroupOf(save_.tensors.path(box.tensor)));
    Open& file = open[key];
    file.boxes.push_back(i);
    file.bytes += box.data.size();
    if (file.bytes < options_.max_file_bytes) continue;
    HR_ASSIGN_OR_RETURN(Group group, MakeGroup(std::exchange(file, {}).boxes));
    groups.push_back(std::move(group));
  }
  for (auto& [key, file] : open) {
    if (file.boxes.empty()) continue;
    HR_ASSIGN_OR_RETURN(Group group, MakeGroup(std::move(file.boxes)));
    groups.push_back(std::move(group));
  }
  return groups;
}

Result<Group> Writing::MakeGroup(std::vector<size_t> boxes) const {
  std::vector<std::string> names;
  HR_RETURN_IF_ERROR(EntryNames(boxes, &names));
  std::vector<SafetensorsSpec> specs;
  for (size_t k = 0; k < boxes.size(); ++k) {
    const SavedBox& box = save_.boxes[boxes[k]];
    specs.push_back({names[k], save_.tensors.dtype(box.tensor), box.box.length});
  }
  // "format" is what other tools look for before they load a file into PyTorch.
  const std::array<std::pair<std::string, std::string>, 3> metadata = {
      {{"format", "pt"},
       {"headrace.save", save_.info.id.Text()},
       {"headrace.rank", std::to_string(save_.rank)}}};
  Group group;
  HR_ASSIGN_OR_RETURN(group.header, WriteSafetensorsHeader(specs, metadata));
  group.boxes = std::move(boxes);
  return group;
}

Status Writing::EntryNames(const std::vector<size_t>& boxes,
                           std::vector<std::string>* names) const {
  std::unordered_set<std::string> taken;
  for (size_t i : boxes) {
    const SavedBox& box = save_.boxes[i];
    HR_ASSIGN_OR_RETURN(std::string name, EntryName(save_.tensors.path(box.tensor), box.box,
                                                    save_.tensors.shape(box.tensor)));
    std::string unique = name;
    for (int n = 2; !taken.insert(unique).second; ++n) unique = name + "#" + std::to_string(n);
    names->push_back(std::move(unique));
  }
  return OkStatus();
}

// Small boxes are taken together, so that threads take about equal turns.
void Writing::HashGroup(Group* group) {
  Timer timer(&report_->hash_ns);
  std::vector<size_t> turns{0};
  uint64_t turn_bytes = 0;
  for (size_t k = 0; k < group->boxes.size(); ++k) {
    turn_bytes += save_.boxes[group->boxes[k]].data.size();
    if (turn_bytes < kTurnBytes && k + 1 < group->boxes.size()) continue;
    turns.push_back(k + 1);
    turn_bytes = 0;
  }
  group->sums.resize(turns.size() - 1);
  (void)ForEach(group->sums.size(), options_.threads, [&](size_t turn) {
    BoxHasher hasher(group->header.offsets[turns[turn]]);
    for (size_t k = turns[turn]; k < turns[turn + 1]; ++k)
      hashed_[group->boxes[k]].sums = hasher.Add(save_.boxes[group->boxes[k]].data);
    group->sums[turn] = hasher.part();
    return OkStatus();
  });
}

void Writing::FindUnchanged(const std::vector<Group>& groups) {
  BoxesBefore boxes(*before_);
  std::unordered_map<uint32_t, uint64_t> live;  // bytes that would still be named, by file
  for (const Group& group : groups) {
    for (size_t i : group.boxes) {
      const SavedBox& box = save_.boxes[i];
      hashed_[i].before =
          boxes.Find(save_.tensors.path(box.tensor), save_.tensors.dtype(box.tensor), box.box,
                     hashed_[i].sums.hash);
      if (hashed_[i].before) live[before_->boxes.entry(*hashed_[i].before).file] += box.data.size();
    }
  }
  // A file of which little is left is given up, so that stores do not fill with remains.
  for (Hashed& one : hashed_) {
    if (!one.before) continue;
    uint32_t file = before_->boxes.entry(*one.before).file;
    if (2 * (live[file] + kDataAlignment) < before_->files[file].bytes) one.before.reset();
  }
}

// Hashes groups as if all of them were written, and names what is unchanged instead. A group of
// which nothing is unchanged stays as it is; what is left of others makes new ones.
Status Writing::LookAt(std::vector<Group> groups, std::vector<Group>* to_write) {
  for (Group& group : groups) {
    HR_RETURN_IF_ERROR(ctx_.Check());
    HashGroup(&group);
  }
  if (!groups.empty()) FindUnchanged(groups);
  std::vector<size_t> left;
  for (Group& group : groups) {
    const auto unchanged = [this](size_t i) { return hashed_[i].before.has_value(); };
    if (std::ranges::none_of(group.boxes, unchanged)) {
      to_write->push_back(std::move(group));
      continue;
    }
    for (size_t i : group.boxes) {
      if (unchanged(i)) {
        AddUnchanged(i);
      } else {
        left.push_back(i);
      }
    }
  }
  HR_ASSIGN_OR_RETURN(std::vector<Group> others, Deal(left));
  for (Group& group : others) to_write->push_back(std::move(group));
  return OkStatus();
}

// Names a box of the checkpoint before.
void Writing::AddUnchanged(size_t i) {
  BoxEntry entry = before_->boxes.entry(*hashed_[i].before);
  auto [at, is_new] =
      carried_.try_emplace(entry.file, static_cast<uint32_t>(manifest_.files.size()));
  if (is_new) {
    manifest_.files.push_back(before_->files[entry.file]);
    manifest_.files.back().carried = true;
    manifest_.files.back().rank = save_.rank;
  }
  entry.file = at->second;
  entry.tensor = numbers_[save_.boxes[i].tensor];
  entry.replica = save_.boxes[i].replica;
  manifest_.boxes.Add(entry, save_.boxes[i].box);
  ++report_->reused_boxes;
  report_->reused_bytes += save_.boxes[i].data.size();
}

// Returns the file's checksums, as they are stored.
std::string Writing::SumUp(const Group& group, FileEntry* file) const {
  std::vector<Hash128> hashes;
  for (size_t i : group.boxes) hashes.push_back(hashed_[i].sums.hash);
  file->name = NameOfDataFile(AsBytes(group.header.bytes), hashes);
  file->bytes = group.bytes();
  file->rank = save_.rank;
  ChunkSums::Builder builder;
  builder.Append(AsBytes(group.header.bytes));
  for (const PartSums& part : group.sums) builder.Append(part);
  const ChunkSums sums = builder.Finish(file->name);
  file->crc32c = sums.WholeFile();
  return sums.Encode();
}

void Writing::AddFile(const Group& group, const FileEntry& file) {
  ++report_->files;
  report_->written_bytes += file.bytes;
  auto number = static_cast<uint32_t>(manifest_.files.size());
  manifest_.files.push_back(file);
  for (size_t k = 0; k < group.boxes.size(); ++k) {
    const SavedBox& box = save_.boxes[group.boxes[k]];
    const BoxSums& sums = hashed_[group.boxes[k]].sums;
    manifest_.boxes.Add({.tensor = numbers_[box.tensor],
                         .file = number,
                         .offset = group.header.offsets[k],
                         .bytes = box.data.size(),
                         .hash = sums.hash,
                         .crc32c = sums.crc32c,
                         .replica = box.replica},
                        box.box);
  }
}

// The bytes are hashed while they are written; the file gets its name when both are done.
Status Writing::WriteGroup(Group* group) {
  std::vector<Bytes> parts{AsBytes(group->header.bytes)};
  for (size_t i : group->boxes) parts.push_back(save_.boxes[i].data);
  FileEntry file;
  std::string sums;
  std::unique_ptr<Thread> hashing;
  if (group->sums.empty() && group->bytes() >= kTurnBytes) {
    auto thread = Thread::Start("hr-hash", [this, group] { HashGroup(group); });
    if (thread.ok()) hashing = *std::move(thread);
  }
  if (hashing == nullptr && group->sums.empty()) HashGroup(group);
  auto key = [&]() -> Result<std::string> {
    hashing.reset();  // joins it
    if (sums.empty()) sums = SumUp(*group, &file);
    return file.DataKey();
  };
  Timer timer(&report_->write_ns);
  HR_RETURN_IF_ERROR(files_->WriteThenName(parts, key, ctx_).status());
  const Bytes sums_bytes = AsBytes(sums);
  HR_RETURN_IF_ERROR(files_->Write(file.SumsKey(), {&sums_bytes, 1}, ctx_).status());
  AddFile(*group, file);
  return OkStatus();
}

Status Writing::WriteGroups(std::vector<Group>* groups) {
  uint64_t bytes = 0;
  for (const Group& group : *groups) bytes += group.bytes() + ChunkSumsBytes(group.bytes());
  // Beside the data: manifests.
  HR_RETURN_IF_ERROR(files_->CheckRoom(bytes + (1 << 20), ctx_));
  for (Group& group : *groups) HR_RETURN_IF_ERROR(WriteGroup(&group));
  return OkStatus();
}

Status Writing::HandIn() {
  Timer timer(&report_->sync_ns);
  // The data first: what names them must not be durable before.
  HR_RETURN_IF_ERROR(files_->Sync(ctx_));
  manifest_.info.finished_ns = WallClockNanos();
  HR_ASSIGN_OR_RETURN(std::string encoded, EncodeRankManifest(manifest_));
  Bytes bytes = AsBytes(encoded);
  HR_RETURN_IF_ERROR(
      files_->Write(RankManifestKey(save_.info.id, save_.rank), {&bytes, 1}, ctx_).status());
  return files_->Sync(ctx_);
}

Result<RankManifest> Writing::All(std::vector<Hash128>* samples) {
  HR_RETURN_IF_ERROR(CheckBoxes());
  hashed_.resize(save_.boxes.size());
  manifest_.info = save_.info;
  manifest_.rank = save_.rank;
  AddTensors();
  manifest_.tree = save_.tree;
  manifest_.loader_state = save_.loader_state;
  std::vector<size_t> fresh, unsure;
  Part(samples, &fresh, &unsure);
  HR_ASSIGN_OR_RETURN(std::vector<Group> to_write, Deal(fresh));
  HR_ASSIGN_OR_RETURN(std::vector<Group> to_look_at, Deal(unsure));
  HR_RETURN_IF_ERROR(LookAt(std::move(to_look_at), &to_write));
  HR_RETURN_IF_ERROR(WriteGroups(&to_write));
  HR_RETURN_IF_ERROR(HandIn());
  return std::move(manifest_);
}

}  // namespace

Result<RankManifest> RankWriter::Write(const RankSave& save, const Manifest* before,
                                       const Context& ctx, WriteReport* report) {
  return Writing(files_, options_, save, before, ctx, report).All(&samples_[save.info.kind]);
}

}  // namespace headrace::checkpoint
