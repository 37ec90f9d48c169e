// The tables of a manifest: tensors, files and boxes, each kept flat, without memory of its own for
// a row, since a large run has a million boxes. Values: one owner at a time; reading from any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/checkpoint/box.h"
#include "headrace/checkpoint/dtype.h"
#include "headrace/checkpoint/hash128.h"

namespace headrace::checkpoint {

// Tensors by number. A tensor's path is its place in the state as a JSON Pointer (tensor_path.h):
// "/model/layers.0.weight", "/optimizer/state/0/exp_avg".
class TensorTable {
 public:
  // Returns its number. The caller sees to it that no path is there twice.
  uint32_t Add(std::string_view path, DType dtype, Extents shape);
  size_t size() const { return rows_.size(); }
  std::string_view path(uint32_t tensor) const {
    return std::string_view(text_).substr(rows_[tensor].text, rows_[tensor].text_bytes);
  }
  DType dtype(uint32_t tensor) const { return rows_[tensor].dtype; }
  Extents shape(uint32_t tensor) const {
    return Extents(extents_).subspan(rows_[tensor].extents, rows_[tensor].dimensions);
  }
  // Looks through all, unless the paths ascend (as in a Manifest): then by bisection.
  std::optional<uint32_t> Find(std::string_view path, bool ascending = false) const;
  // Makes room for so many tensors, bytes of all their paths, and numbers of all their shapes.
  void Reserve(size_t tensors, size_t text_bytes, size_t numbers);
  size_t text_bytes() const { return text_.size(); }
  size_t numbers() const { return extents_.size(); }
  void Clear();

 private:
  struct Row {
    uint64_t text, extents;
    uint32_t text_bytes;
    uint8_t dimensions;
    DType dtype;
  };
  std::vector<Row> rows_;
  std::string text_;
  std::vector<uint64_t> extents_;
};

struct FileEntry {
  Hash128 name;          // NameOfDataFile
  uint64_t bytes = 0;    // all of it
  uint32_t crc32c = 0;   // of all of it
  uint32_t rank = 0;     // who named it in this checkpoint (the lowest one)
  bool carried = false;  // written by an earlier checkpoint

  std::string DataKey() const;  // "data/<hash>.safetensors"
  std::string SumsKey() const;  // "data/<hash>.crc"
};

struct BoxEntry {
  uint32_t tensor = 0, file = 0;  // numbers in the tables beside it
  uint64_t offset = 0;            // in the file
  uint64_t bytes = 0;             // those that its elements take
  Hash128 hash;                   // of these bytes
  uint32_t crc32c = 0;            // of these bytes
  // Rank manifests only: other ranks may hand in the same box; one of them is kept, and all must
  // have the same hash.
  bool replica = false;
};

class BoxTable {
 public:
  void Add(const BoxEntry& entry, BoxView box);
  size_t size() const { return rows_.size(); }
  const BoxEntry& entry(size_t i) const { return rows_[i].entry; }
  BoxEntry& entry(size_t i) { return rows_[i].entry; }
  BoxView box(size_t i) const {
    Extents all = Extents(extents_).subspan(rows_[i].extents, size_t{2} * rows_[i].dimensions);
    return {all.first(rows_[i].dimensions), all.last(rows_[i].dimensions)};
  }
  void Reserve(size_t boxes, size_t numbers);
  void Clear();

 private:
  struct Row {
    BoxEntry entry;
    uint64_t extents;
    uint8_t dimensions;
  };
  std::vector<Row> rows_;
  std::vector<uint64_t> extents_;  // offsets, then lengths
};

}  // namespace headrace::checkpoint
