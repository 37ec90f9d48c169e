#include "headrace/loader/testing/tiny_dataset.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "headrace/base/crc32c.h"
#include "headrace/dataset/index.h"
#include "headrace/dataset/manifest.h"
#include "headrace/dataset/tar.h"

namespace headrace::loader::testing {

namespace {
template <typename T>
T Must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "TinyDataset: %s\n", result.status().ToString().c_str());
  std::abort();
}

void WriteFile(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}
}  // namespace

struct TinyDataset::ManifestParts {
  dataset::Manifest manifest;
};

std::string TinyDataset::Key(uint64_t sample) { return fmt::format("s/{:06}", sample); }

std::string TinyDataset::Text(uint64_t sample) {
  return std::string(sample % 50, static_cast<char>('a' + sample % 26));
}

TinyDataset::TinyDataset(const std::vector<uint64_t>& shard_samples)
    : parts_(std::make_unique<ManifestParts>()) {
  std::string pattern = (std::filesystem::temp_directory_path() / "hr-tiny-XXXXXX").string();
  path_ = mkdtemp(pattern.data());
  parts_->manifest.fields = {"cls", "txt"};
  uint64_t first = 0;
  for (size_t s = 0; s < shard_samples.size(); ++s) {
    WriteShard(first, shard_samples[s], s);
    first += shard_samples[s];
  }
  WriteFile(path_ + "/headrace.json", parts_->manifest.ToJson());
}

TinyDataset::~TinyDataset() { std::filesystem::remove_all(path_); }

void TinyDataset::WriteShard(uint64_t first, uint64_t count, size_t number) {
  std::string tar;
  dataset::IndexBuilder builder(dataset::ShardKind::kTar);
  std::string name = fmt::format("shard-{:06}.tar", number);
  for (uint64_t i = first; i < first + count; ++i) {
    std::vector<dataset::IndexBuilder::Field> fields;
    for (const auto& [field, value] :
         {std::pair<std::string_view, std::string>{"cls", std::to_string(i)}, {"txt", Text(i)}}) {
      dataset::AppendTarHeader(fmt::format("{}.{}", Key(i), field), value.size(), &tar);
      if (field == "cls") cls_places_.push_back({path_ + "/" + name, tar.size()});
      dataset::IndexBuilder::Field entry;
      entry.name = field;
      entry.offset = tar.size();
      entry.length = value.size();
      entry.crc32c = Crc32c(AsBytes(value));
      fields.push_back(entry);
      tar += value;
      tar.resize(tar.size() + dataset::TarPaddedBytes(value.size()) - value.size());
    }
    Status added = builder.Add(Key(i), fields);
    if (!added.ok()) std::abort();
  }
  tar.resize(tar.size() + dataset::kTarEndBytes);
  WriteFile(path_ + "/" + name, tar);
  auto file = Must(PosixFileSystem()->OpenForRead(path_ + "/" + name));
  std::string index = Must(builder.Finish(Must(dataset::IdentifyShard(*file, Context()))));
  std::string index_name = name + std::string(dataset::kIndexSuffix);
  WriteFile(path_ + "/" + index_name, index);
  auto reader = Must(dataset::IndexReader::FromBytes(index, index_name));
  dataset::ManifestShard shard;
  shard.name = name;
  shard.index = index_name;
  shard.samples = count;
  shard.bytes = tar.size();
  shard.crc32c = Crc32c(AsBytes(tar));
  shard.index_header_crc32c = reader->header_crc32c();
  parts_->manifest.shards.push_back(shard);
}

std::shared_ptr<const dataset::Dataset> TinyDataset::Open() const {
  return Must(dataset::Dataset::Open(PosixFileSystem(), path_, {}));
}

void TinyDataset::Damage(uint64_t sample) {
  const Place& place = cls_places_.at(sample);
  std::fstream file(place.file, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(place.offset));
  file.put('!');
}

}  // namespace headrace::loader::testing
