#include "headrace/checkpoint/assemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_map>

#include "headrace/base/text.h"
#include "headrace/checkpoint/assemble_tables.h"

namespace headrace::checkpoint {
namespace {

constexpr size_t kShownFaults = 100;
constexpr size_t kMostReserved = 4'000'000;  // boxes

bool Before(Extents a, Extents b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

std::string Shown(std::string_view path) { return EscapeText(path.substr(0, 300)); }

// "0, 3-7, 12"; `numbers` ascend.
std::string RangesText(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const size_t first = i;
    while (i + 1 < numbers.size() && numbers[i + 1] == numbers[i] + 1) ++i;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[first]);
    if (i > first) text += fmt::format("-{}", numbers[i]);
  }
  return text;
}

}  // namespace

struct Assembler::Rep {
  Rep(const SaveId& save, uint32_t ranks)
      : id(save), world_size(ranks), is_in(ranks), trees(ranks), loader_states(ranks) {}

  void TakeInfo(const RankManifest& manifest);
  void TakeTensors(const RankManifest& manifest);
  void ExpectTensorsLike(const TensorTable& theirs);
  uint32_t PlaceOfTensor(const TensorTable& table, uint32_t tensor, uint32_t guess, uint32_t rank);
  void TakeFiles(const RankManifest& manifest);
  void TakeBoxes(const RankManifest& manifest);

  void OrderBoxes(const std::vector<uint32_t>& tensor_order);
  void CheckTensor(uint32_t tensor, size_t begin, size_t end);
  size_t DropReplicas(uint32_t tensor, size_t begin, size_t end);
  bool IsReplicaOf(uint32_t tensor, uint32_t kept, uint32_t box);
  void AddTilingFault(uint32_t tensor, size_t begin, const TilingFault& fault);
  void TakeOverFiles(Manifest* manifest);
  void Build(const std::vector<uint32_t>& tensor_order, Manifest* manifest);
  Status Failure() const;

  const SaveId id;
  const uint32_t world_size;
  std::vector<bool> is_in;
  uint32_t num_in = 0, lowest_in = UINT32_MAX;
  SaveInfo info;  // texts are those of the lowest rank
  std::vector<std::string> faults;
  TextsOfRanks trees, loader_states;

  TensorTable tensors;  // in the order in which they came
  PathIndex tensor_places;
  std::vector<uint32_t> tensor_rank;  // who named it first
  std::vector<bool> tensor_differs;   // ranks disagree on it
  std::vector<FileEntry> files;
  std::unordered_map<Hash128, uint32_t, NameHash> file_places;
  BoxTable boxes;  // numbers are those of the tables here
  std::vector<uint32_t> box_rank;

  std::vector<uint32_t> tensor_map, file_map;  // from a rank's numbers to ours
  std::vector<uint32_t> ordered;               // boxes by tensor_order, then offset, then rank
  std::vector<size_t> first_box;               // of each place in tensor_order in `ordered`
  std::vector<uint32_t> kept;                  // what is left of `ordered` without further replicas
  std::vector<BoxView> views;                  // of one tensor
};

Assembler::Assembler(const SaveId& id, uint32_t world_size)
    : rep_(std::make_unique<Rep>(id, world_size)) {}
Assembler::~Assembler() = default;

Status Assembler::Add(const RankManifest& manifest) {
  Rep& r = *rep_;
  if (manifest.info.id != r.id || manifest.info.world_size != r.world_size)
    return Error(Code::kInvalidArgument,
                 "rank {} handed in {} of {} ranks, expected {} of {} ranks", manifest.rank,
                 manifest.info.id.Text(), manifest.info.world_size, r.id.Text(), r.world_size);
  if (manifest.rank >= r.world_size || r.is_in[manifest.rank])
    return Error(Code::kInvalidArgument, "rank {} is none of {}, or has handed in its part before",
                 manifest.rank, r.world_size);
  r.is_in[manifest.rank] = true;
  ++r.num_in;
  r.TakeInfo(manifest);
  r.TakeTensors(manifest);
  r.TakeFiles(manifest);
  r.TakeBoxes(manifest);
  return OkStatus();
}

void Assembler::Rep::TakeInfo(const RankManifest& manifest) {
  const SaveInfo& theirs = manifest.info;
  const uint32_t rank = manifest.rank;
  trees.Set(rank, manifest.tree);
  loader_states.Set(rank, manifest.loader_state);
  const bool first = num_in == 1;
  if (!first && theirs.kind != info.kind)
    faults.push_back(fmt::format("rank {} saved a '{}' checkpoint, rank {} a '{}' one", rank,
                                 EscapeText(theirs.kind), lowest_in, EscapeText(info.kind)));
  if (!first && theirs.dataset_version != info.dataset_version)
    faults.push_back(fmt::format("rank {} reads version '{}' of the data set, rank {} '{}'", rank,
                                 EscapeText(theirs.dataset_version), lowest_in,
                                 EscapeText(info.dataset_version)));
  const int64_t started = first ? theirs.started_ns : std::min(info.started_ns, theirs.started_ns);
  const int64_t finished =
      first ? theirs.finished_ns : std::max(info.finished_ns, theirs.finished_ns);
  if (rank < lowest_in) {
    lowest_in = rank;
    info = theirs;
  }
  info.started_ns = started;
  info.finished_ns = finished;
}

void Assembler::Rep::TakeTensors(const RankManifest& manifest) {
  const TensorTable& theirs = manifest.tensors;
  const size_t known = tensors.size();
  tensor_map.resize(theirs.size());
  uint32_t guess = 0;  // most ranks have the same tensors in the same order
  for (uint32_t i = 0; i < theirs.size(); ++i) {
    const uint32_t place = PlaceOfTensor(theirs, i, guess, manifest.rank);
    tensor_map[i] = place;
    guess = place + 1;
    const Extents ours_shape = tensors.shape(place), shape = theirs.shape(i);
    if (tensors.dtype(place) == theirs.dtype(i) &&
        std::equal(shape.begin(), shape.end(), ours_shape.begin(), ours_shape.end()))
      continue;
    tensor_differs[place] = true;
    faults.push_back(fmt::format("'{}' is {} {} on rank {} and {} {} on rank {}",
                                 Shown(theirs.path(i)), DTypeName(theirs.dtype(i)),
                                 ShapeText(shape), manifest.rank, DTypeName(tensors.dtype(place)),
                                 ShapeText(ours_shape), tensor_rank[place]));
  }
  if (num_in == 2 && tensors.size() - known > theirs.size() / 2) ExpectTensorsLike(theirs);
}

// Ranks have tensors of their own: others will have about as many. A guess, so that tables of
// millions are not moved again and again.
void Assembler::Rep::ExpectTensorsLike(const TensorTable& theirs) {
  const size_t times = std::min<size_t>(world_size, kMostReserved / theirs.size());
  if (times <= num_in) return;
  tensors.Reserve(theirs.size() * times, theirs.text_bytes() * times, theirs.numbers() * times);
  tensor_places.Reserve(tensors, theirs.size() * times);
  tensor_rank.reserve(theirs.size() * times);
}

uint32_t Assembler::Rep::PlaceOfTensor(const TensorTable& table, uint32_t tensor, uint32_t guess,
                                       uint32_t rank) {
  const std::string_view path = table.path(tensor);
  if (guess < tensors.size() && tensors.path(guess) == path) return guess;
  size_t slot = 0;
  if (const auto found = tensor_places.Find(tensors, path, &slot)) return *found;
  const uint32_t place = tensors.Add(path, table.dtype(tensor), table.shape(tensor));
  tensor_places.Put(slot, place);
  tensor_rank.push_back(rank);
  tensor_differs.push_back(false);
  return place;
}

void Assembler::Rep::TakeFiles(const RankManifest& manifest) {
  file_map.clear();
  for (const FileEntry& theirs : manifest.files) {
    const auto [found, is_new] =
        file_places.try_emplace(theirs.name, static_cast<uint32_t>(files.size()));
    file_map.push_back(found->second);
    if (is_new) {
      files.push_back(theirs);
      files.back().rank = manifest.rank;
      continue;
    }
    FileEntry& ours = files[found->second];
    if (ours.bytes != theirs.bytes || ours.crc32c != theirs.crc32c)
      faults.push_back(fmt::format(
          "the file {} has {} bytes and CRC32C {:08x} on rank {}, {} bytes and {:08x} on rank {}",
          theirs.name.Hex(), theirs.bytes, theirs.crc32c, manifest.rank, ours.bytes, ours.crc32c,
          ours.rank));
    ours.carried = ours.carried && theirs.carried;
    ours.rank = std::min(ours.rank, manifest.rank);
  }
}

void Assembler::Rep::TakeBoxes(const RankManifest& manifest) {
  if (num_in == 1 && manifest.boxes.size() > 0) {
    // Others will have about as many: a guess, so that the tables are not moved again and again.
    const size_t all = std::min(manifest.boxes.size() * world_size, kMostReserved);
    boxes.Reserve(all, all * 2 * manifest.boxes.box(0).dimensions());
    box_rank.reserve(all);
  }
  for (size_t i = 0; i < manifest.boxes.size(); ++i) {
    const BoxView box = manifest.boxes.box(i);
    if (Volume(box.length) == 0) continue;
    BoxEntry entry = manifest.boxes.entry(i);
    entry.tensor = tensor_map[entry.tensor];
    entry.file = file_map[entry.file];
    boxes.Add(entry, box);
    box_rank.push_back(manifest.rank);
  }
}

std::vector<uint32_t> Assembler::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < rep_->world_size; ++rank)
    if (!rep_->is_in[rank]) missing.push_back(rank);
  return missing;
}

const std::vector<std::string>& Assembler::faults() const { return rep_->faults; }

Result<Manifest> Assembler::Finish() {
  Rep& r = *rep_;
  if (r.num_in < r.world_size) {
    r.faults.push_back(fmt::format("{} of {} ranks did not hand in their part: {}",
                                   r.world_size - r.num_in, r.world_size,
                                   RangesText(MissingRanks())));
    return r.Failure();  // what they have would seem to be missing everywhere
  }
  std::vector<uint32_t> tensor_order(r.tensors.size());
  std::iota(tensor_order.begin(), tensor_order.end(), 0);
  auto before = [&r](uint32_t a, uint32_t b) { return r.tensors.path(a) < r.tensors.path(b); };
  if (!std::is_sorted(tensor_order.begin(), tensor_order.end(), before))
    std::sort(tensor_order.begin(), tensor_order.end(), before);
  r.OrderBoxes(tensor_order);
  r.kept.reserve(r.ordered.size());
  Manifest manifest;
  for (size_t i = 0; i < tensor_order.size(); ++i) {
    manifest.first_box.push_back(r.kept.size());
    r.CheckTensor(tensor_order[i], r.first_box[i], r.first_box[i + 1]);
  }
  manifest.first_box.push_back(r.kept.size());
  if (!r.faults.empty()) return r.Failure();
  manifest.info = r.info;
  manifest.trees = r.trees.Finish();
  manifest.loader_states = r.loader_states.Finish();
  r.TakeOverFiles(&manifest);
  r.Build(tensor_order, &manifest);
  return manifest;
}

void Assembler::Rep::OrderBoxes(const std::vector<uint32_t>& tensor_order) {
  std::vector<uint32_t> place_of(tensors.size());
  for (uint32_t i = 0; i < tensor_order.size(); ++i) place_of[tensor_order[i]] = i;
  first_box.assign(tensors.size() + 1, 0);
  for (size_t i = 0; i < boxes.size(); ++i) ++first_box[place_of[boxes.entry(i).tensor] + 1];
  std::partial_sum(first_box.begin(), first_box.end(), first_box.begin());
  std::vector<size_t> next = first_box;
  ordered.resize(boxes.size());
  for (uint32_t i = 0; i < boxes.size(); ++i) ordered[next[place_of[boxes.entry(i).tensor]]++] = i;
  auto before = [this](uint32_t a, uint32_t b) {
    const Extents left = boxes.box(a).offset, right = boxes.box(b).offset;
    if (Before(left, right)) return true;
    return !Before(right, left) && box_rank[a] < box_rank[b];
  };
  for (size_t i = 0; i < tensor_order.size(); ++i) {
    const auto begin = ordered.begin() + static_cast<std::ptrdiff_t>(first_box[i]);
    const auto end = ordered.begin() + static_cast<std::ptrdiff_t>(first_box[i + 1]);
    if (!std::is_sorted(begin, end, before)) std::sort(begin, end, before);
  }
}

// Looks at the boxes ordered[begin, end) of a tensor, and adds what is kept of them to `kept`.
void Assembler::Rep::CheckTensor(uint32_t tensor, size_t begin, size_t end) {
  const size_t first_kept = DropReplicas(tensor, begin, end);
  if (tensor_differs[tensor]) return;
  views.clear();
  for (size_t i = first_kept; i < kept.size(); ++i) views.push_back(boxes.box(kept[i]));
  const Extents shape = tensors.shape(tensor);
  if (views.size() == 1 && IsWhole(views[0], shape)) return;
  for (const TilingFault& fault : CheckTiling(shape, views))
    AddTilingFault(tensor, first_kept, fault);
}

// Returns where in `kept` the tensor's boxes begin.
size_t Assembler::Rep::DropReplicas(uint32_t tensor, size_t begin, size_t end) {
  const size_t first_kept = kept.size();
  for (size_t i = begin; i < end; ++i) {
    const bool again = kept.size() > first_kept && IsReplicaOf(tensor, kept.back(), ordered[i]);
    if (!again) kept.push_back(ordered[i]);
  }
  return first_kept;
}

bool Assembler::Rep::IsReplicaOf(uint32_t tensor, uint32_t kept_box, uint32_t box) {
  const BoxEntry &a = boxes.entry(kept_box), &b = boxes.entry(box);
  if (!a.replica || !b.replica || !SameBox(boxes.box(kept_box), boxes.box(box))) return false;
  if (a.hash != b.hash || a.crc32c != b.crc32c)
    faults.push_back(fmt::format(
        "'{}': ranks {} and {} say that they have the same {}, but their bytes differ",
        Shown(tensors.path(tensor)), box_rank[kept_box], box_rank[box], BoxText(boxes.box(box))));
  return true;
}

void Assembler::Rep::AddTilingFault(uint32_t tensor, size_t begin, const TilingFault& fault) {
  const std::string what =
      fmt::format("'{}' {}", Shown(tensors.path(tensor)), ShapeText(tensors.shape(tensor)));
  // A box and its rank. The fault counts boxes from `begin` in `kept`.
  auto owned = [&](uint32_t place) {
    const uint32_t box = kept[begin + place];
    return fmt::format("rank {} with {}", box_rank[box], BoxText(boxes.box(box)));
  };
  switch (fault.kind) {
    case TilingFault::Kind::kOutside:
      faults.push_back(fmt::format("{}: {} is outside", what, owned(fault.first)));
      break;
    case TilingFault::Kind::kOverlap:
      faults.push_back(fmt::format("{}: {} and {} both have {}", what, owned(fault.first),
                                   owned(fault.second), BoxText(fault.region)));
      break;
    case TilingFault::Kind::kMissing:
      faults.push_back(fmt::format("{}: no rank has all of {}", what, BoxText(fault.region)));
      break;
    case TilingFault::Kind::kTooIrregular:
      faults.push_back(fmt::format("{}: cut too irregularly in {}", what, BoxText(fault.region)));
      break;
  }
}

// Files that kept boxes name, by rank; boxes get their new numbers.
void Assembler::Rep::TakeOverFiles(Manifest* manifest) {
  std::vector<bool> used(files.size());
  for (uint32_t box : kept) used[boxes.entry(box).file] = true;
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < files.size(); ++i)
    if (used[i]) order.push_back(i);
  std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
    return std::tie(files[a].rank, files[a].name) < std::tie(files[b].rank, files[b].name);
  });
  file_map.assign(files.size(), 0);
  for (uint32_t i : order) {
    file_map[i] = static_cast<uint32_t>(manifest->files.size());
    manifest->files.push_back(files[i]);
  }
}

void Assembler::Rep::Build(const std::vector<uint32_t>& tensor_order, Manifest* manifest) {
  size_t numbers = 0;
  for (uint32_t box : kept) numbers += 2 * boxes.box(box).dimensions();
  manifest->boxes.Reserve(kept.size(), numbers);
  manifest->tensors.Reserve(tensors.size(), tensors.text_bytes(), tensors.numbers());
  for (uint32_t i = 0; i < tensor_order.size(); ++i) {
    const uint32_t tensor = tensor_order[i];
    manifest->tensors.Add(tensors.path(tensor), tensors.dtype(tensor), tensors.shape(tensor));
    for (uint64_t j = manifest->first_box[i]; j < manifest->first_box[i + 1]; ++j) {
      BoxEntry entry = boxes.entry(kept[j]);
      entry.tensor = i;
      entry.file = file_map[entry.file];
      entry.replica = false;
      manifest->boxes.Add(entry, boxes.box(kept[j]));
    }
  }
}

Status Assembler::Rep::Failure() const {
  std::string text = fmt::format("the checkpoint of {} is not whole:", id.Text());
  for (size_t i = 0; i < faults.size() && i < kShownFaults; ++i) text += "\n  " + faults[i];
  if (faults.size() > kShownFaults)
    text += fmt::format("\n  and {} more", faults.size() - kShownFaults);
  return {Code::kFailedPrecondition, std::move(text)};
}

}  // namespace headrace::checkpoint
