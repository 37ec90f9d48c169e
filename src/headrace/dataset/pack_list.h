// What is to be packed: samples in order, each a key and its fields, and where their bytes come
// from. Compact (texts share one arena, about 60 bytes a field), since a list can have 10^8
// entries. Built by one thread; then immutable and safe to read from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// Where a field's bytes come from.
enum class PackOrigin : uint8_t {
  kFile,   // a file of its own
  kRange,  // a range of a container (a tar)
  kText,   // given in the list itself (a label)
  kArray,  // a range of a container that holds bare numbers, written as an .npy array
};

struct PackField {
  uint64_t size_bytes = 0;
  uint64_t text_begin = 0;    // kFile: its path, kText: its bytes, kArray: its form; in the arena
  uint64_t range_offset = 0;  // kRange, kArray: where its data begins in the container
  uint64_t stored_bytes = 0;  // kArray: of its numbers in the container
  int64_t mtime_ns = 0;       // kFile
  uint32_t text_bytes = 0;
  uint32_t container = 0;  // kRange, kArray: place in containers()
  uint16_t name = 0;       // place in field_names()
  PackOrigin origin = PackOrigin::kFile;
};

// A shard that samples are taken from.
struct PackContainer {
  using File = std::shared_ptr<const RandomAccessFile>;
  std::string path;
  uint64_t size_bytes = 0;
  int64_t mtime_ns = 0;
  // Opens it; from any thread. Empty: it is the file at `path`.
  std::function<Result<File>()> open = {};
};

class PackList {
 public:
  // Starts a sample; the Add calls that follow belong to it. kInvalidArgument when the key is
  // longer than the 65,535 bytes that an index can hold.
  Status BeginSample(std::string_view key);
  // Each returns kInvalidArgument when the sample already has a field of that name, or when there
  // are more than 65,535 names.
  Status AddFile(std::string_view field, std::string_view path, uint64_t size_bytes,
                 int64_t mtime_ns);
  Status AddRange(std::string_view field, uint32_t container, uint64_t offset, uint64_t size_bytes);
  Status AddText(std::string_view field, std::string_view text);
  // `form`: an ArrayForm as the index keeps it. kDataLoss when it is none.
  Status AddArray(std::string_view field, uint32_t container, uint64_t offset,
                  uint64_t stored_bytes, std::string_view form);
  uint32_t AddContainer(PackContainer container);

  size_t num_samples() const { return samples_.size(); }
  std::string_view key(size_t sample) const;
  std::span<const PackField> fields(size_t sample) const;
  std::string_view text(const PackField& field) const {
    return std::string_view(arena_).substr(field.text_begin, field.text_bytes);
  }
  std::string_view name(const PackField& field) const { return names_[field.name]; }
  const std::vector<std::string>& field_names() const { return names_; }
  const std::vector<PackContainer>& containers() const { return containers_; }
  // Bytes of all fields.
  uint64_t total_bytes() const { return total_bytes_; }

  // Puts the samples into another order: new place i holds what was at order[i]. `order` is a
  // permutation of 0..num_samples().
  void Reorder(std::span<const uint64_t> order);
  // Joins samples of equal keys into one, at the place of the first, with the fields of all.
  // kInvalidArgument names the first key that has a field twice: a shard could not tell them apart.
  Status JoinEqualKeys();
  // 64 hex digits over every key, field, place, size and time: equal text, equal input.
  std::string Fingerprint() const;

  std::vector<std::string> classes;  // class names in label order; may be empty
  // What was seen and is not packed, a line each, for the person who asked ("README.md: ...").
  std::vector<std::string> left_out;

 private:
  static constexpr uint32_t kJoined = UINT32_MAX;
  struct Sample {
    uint64_t key_begin = 0;
    uint64_t first_field = 0;
    uint32_t key_bytes = 0;
    uint32_t num_fields = 0;  // kJoined: they belong to another sample now
  };
  Status AddField(std::string_view name, PackField field);
  // Moves the fields of `samples`, which have one key, to the first of them; the others lose
  // theirs.
  Status Join(std::span<const size_t> samples);

  std::vector<Sample> samples_;
  std::vector<PackField> fields_;
  std::vector<std::string> names_;
  std::map<std::string, uint16_t, std::less<>> name_ids_;
  std::vector<PackContainer> containers_;
  std::string arena_;
  uint64_t total_bytes_ = 0;
};

}  // namespace headrace::dataset
