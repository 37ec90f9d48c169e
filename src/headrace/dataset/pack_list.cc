#include "headrace/dataset/pack_list.h"

#include <algorithm>
#include <limits>

#include "headrace/base/crc32c.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"
#include "headrace/dataset/array_form.h"

namespace headrace::dataset {
namespace {

constexpr size_t kMaxKeyBytes = 65535;

void UpdateWord(Sha256* hash, uint64_t word) {
  hash->Update(Bytes(reinterpret_cast<const std::byte*>(&word), sizeof(word)));
}

void UpdateText(Sha256* hash, std::string_view text) {
  UpdateWord(hash, text.size());
  hash->Update(text);
}

}  // namespace

Status PackList::BeginSample(std::string_view key) {
  if (key.size() > kMaxKeyBytes)
    return Error(
        Code::kInvalidArgument,
        "a key of {} bytes, which begins with '{}'; at most {} are allowed: rename the file",
        key.size(), EscapeText(key.substr(0, 60)), kMaxKeyBytes);
  Sample sample;
  sample.key_begin = arena_.size();
  sample.key_bytes = static_cast<uint32_t>(key.size());
  sample.first_field = fields_.size();
  arena_.append(key);
  samples_.push_back(sample);
  return OkStatus();
}

Status PackList::AddField(std::string_view name, PackField field) {
  auto known = name_ids_.find(name);
  if (known == name_ids_.end()) {
    if (names_.size() > std::numeric_limits<uint16_t>::max())
      return Error(Code::kInvalidArgument,
                   "more than 65,535 different field names, the last '{}'; a field is what follows "
                   "the first dot of a file's name: rename the files",
                   EscapeText(name));
    known = name_ids_.emplace(name, static_cast<uint16_t>(names_.size())).first;
    names_.emplace_back(name);
  }
  field.name = known->second;
  Sample& sample = samples_.back();
  for (const PackField& other : fields(samples_.size() - 1)) {
    if (other.name == field.name)
      return Error(Code::kInvalidArgument,
                   "sample '{}' has two fields '{}'; rename one of the two files",
                   EscapeText(key(samples_.size() - 1)), EscapeText(name));
  }
  fields_.push_back(field);
  ++sample.num_fields;
  total_bytes_ += field.size_bytes;
  return OkStatus();
}

Status PackList::AddFile(std::string_view field, std::string_view path, uint64_t size_bytes,
                         int64_t mtime_ns) {
  PackField f;
  f.origin = PackOrigin::kFile;
  f.size_bytes = size_bytes;
  f.mtime_ns = mtime_ns;
  f.text_begin = arena_.size();
  f.text_bytes = static_cast<uint32_t>(path.size());
  arena_.append(path);
  return AddField(field, f);
}

Status PackList::AddRange(std::string_view field, uint32_t container, uint64_t offset,
                          uint64_t size_bytes) {
  PackField f;
  f.origin = PackOrigin::kRange;
  f.size_bytes = size_bytes;
  f.container = container;
  f.range_offset = offset;
  return AddField(field, f);
}

Status PackList::AddText(std::string_view field, std::string_view text) {
  PackField f;
  f.origin = PackOrigin::kText;
  f.size_bytes = text.size();
  f.text_begin = arena_.size();
  f.text_bytes = static_cast<uint32_t>(text.size());
  arena_.append(text);
  return AddField(field, f);
}

Status PackList::AddArray(std::string_view field, uint32_t container, uint64_t offset,
                          uint64_t stored_bytes, std::string_view form) {
  ArrayForm parsed;
  if (!ArrayForm::Parse(form, &parsed))
    return Error(Code::kDataLoss, "the index of '{}' has no form for the numbers of '{}'",
                 EscapeText(containers_[container].path), EscapeText(field));
  PackField f;
  f.origin = PackOrigin::kArray;
  f.size_bytes = NpyBytes(parsed);
  f.container = container;
  f.range_offset = offset;
  f.stored_bytes = stored_bytes;
  f.text_begin = arena_.size();
  f.text_bytes = static_cast<uint32_t>(form.size());
  arena_.append(form);
  return AddField(field, f);
}

uint32_t PackList::AddContainer(PackContainer container) {
  containers_.push_back(std::move(container));
  return static_cast<uint32_t>(containers_.size() - 1);
}

std::string_view PackList::key(size_t sample) const {
  const Sample& s = samples_[sample];
  return std::string_view(arena_).substr(s.key_begin, s.key_bytes);
}

std::span<const PackField> PackList::fields(size_t sample) const {
  const Sample& s = samples_[sample];
  return std::span(fields_).subspan(s.first_field, s.num_fields);
}

void PackList::Reorder(std::span<const uint64_t> order) {
  std::vector<Sample> moved;
  moved.reserve(samples_.size());
  for (uint64_t from : order) moved.push_back(samples_[from]);
  samples_ = std::move(moved);
}

Status PackList::JoinEqualKeys() {
  std::vector<std::pair<uint32_t, size_t>> hashed(num_samples());
  for (size_t i = 0; i < hashed.size(); ++i) hashed[i] = {Crc32c(AsBytes(key(i))), i};
  std::sort(hashed.begin(), hashed.end());
  std::vector<size_t> equal;
  bool joined = false;
  for (size_t begin = 0, end = 0; begin < hashed.size(); begin = end) {
    while (end < hashed.size() && hashed[end].first == hashed[begin].first) ++end;
    if (end - begin == 1) continue;
    // One hash value, mostly of one key; by key and place, so that the result is in list order.
    std::sort(hashed.begin() + begin, hashed.begin() + end, [this](const auto& a, const auto& b) {
      return std::pair(key(a.second), a.second) < std::pair(key(b.second), b.second);
    });
    for (size_t i = begin; i < end;) {
      equal.clear();
      size_t first = hashed[i].second;
      for (; i < end && key(hashed[i].second) == key(first); ++i) equal.push_back(hashed[i].second);
      if (equal.size() == 1) continue;
      HR_RETURN_IF_ERROR(Join(equal));
      joined = true;
    }
  }
  if (joined)
    std::erase_if(samples_, [](const Sample& sample) { return sample.num_fields == kJoined; });
  return OkStatus();
}

Status PackList::Join(std::span<const size_t> samples) {
  uint64_t first_field = fields_.size();
  for (size_t sample : samples) {
    for (size_t i = 0; i < samples_[sample].num_fields; ++i) {
      PackField field = fields_[samples_[sample].first_field + i];
      for (size_t j = first_field; j < fields_.size(); ++j) {
        if (fields_[j].name == field.name)
          return Error(Code::kInvalidArgument,
                       "two samples have the key '{}' and a field '{}' (samples {} and {} of the "
                       "source); rename one, or pack the sources into data sets of their own",
                       EscapeText(key(sample)), EscapeText(name(field)), samples.front(), sample);
      }
      fields_.push_back(field);
    }
    samples_[sample].num_fields = kJoined;
  }
  samples_[samples.front()].first_field = first_field;
  samples_[samples.front()].num_fields = static_cast<uint32_t>(fields_.size() - first_field);
  return OkStatus();
}

std::string PackList::Fingerprint() const {
  Sha256 hash;
  for (const PackContainer& container : containers_) {
    UpdateText(&hash, container.path);
    UpdateWord(&hash, container.size_bytes);
    UpdateWord(&hash, static_cast<uint64_t>(container.mtime_ns));
  }
  for (const std::string& name : names_) UpdateText(&hash, name);
  for (size_t i = 0; i < num_samples(); ++i) {
    UpdateText(&hash, key(i));
    UpdateWord(&hash, fields(i).size());
    for (const PackField& field : fields(i)) {
      UpdateWord(&hash, (uint64_t{field.name} << 8) | static_cast<uint64_t>(field.origin));
      UpdateWord(&hash, field.size_bytes);
      UpdateWord(&hash, static_cast<uint64_t>(field.mtime_ns));
      UpdateWord(&hash, (uint64_t{field.container} << 48) ^ field.range_offset);
      UpdateText(&hash, text(field));
      if (field.origin == PackOrigin::kArray) UpdateWord(&hash, field.stored_bytes);
    }
  }
  return hash.Finish();
}

}  // namespace headrace::dataset
