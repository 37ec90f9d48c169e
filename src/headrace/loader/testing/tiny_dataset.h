// A real dataset of small text samples in a temporary folder, for tests of the loader: tar shards,
// indexes and a manifest, written with the same parts as `headrace pack`. For one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "headrace/dataset/dataset.h"

namespace headrace::loader::testing {

// Sample i has key "s/00000i" and two fields: "cls" = i in decimal digits, "txt" = i mod 50 bytes
// of the letter 'a' + i mod 26.
class TinyDataset {
 public:
  // Makes the shards with these numbers of samples. Ends the process on failure.
  explicit TinyDataset(const std::vector<uint64_t>& shard_samples);
  ~TinyDataset();

  std::shared_ptr<const dataset::Dataset> Open() const;
  const std::string& path() const { return path_; }
  // Overwrites one byte of sample i's "cls" field, so that its checksum is wrong.
  void Damage(uint64_t sample);
  static std::string Key(uint64_t sample);
  static std::string Text(uint64_t sample);

 private:
  void WriteShard(uint64_t first, uint64_t count, size_t number);

  std::string path_;
  struct Place {
    std::string file;
    uint64_t offset;
  };
  std::vector<Place> cls_places_;
  struct ManifestParts;
  std::unique_ptr<ManifestParts> parts_;
};

}  // namespace headrace::loader::testing
