#include "headrace/checkpoint/manifest_tables.h"

#include <algorithm>

namespace headrace::checkpoint {

uint32_t TensorTable::Add(std::string_view path, DType dtype, Extents shape) {
  rows_.push_back({text_.size(), extents_.size(), static_cast<uint32_t>(path.size()),
                   static_cast<uint8_t>(shape.size()), dtype});
  text_.append(path);
  extents_.insert(extents_.end(), shape.begin(), shape.end());
  return static_cast<uint32_t>(rows_.size() - 1);
}

std::optional<uint32_t> TensorTable::Find(std::string_view wanted, bool ascending) const {
  if (!ascending) {
    for (uint32_t i = 0; i < size(); ++i)
      if (path(i) == wanted) return i;
    return std::nullopt;
  }
  uint32_t begin = 0, end = static_cast<uint32_t>(size());
  while (begin < end) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (path(middle) < wanted) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  if (begin < size() && path(begin) == wanted) return begin;
  return std::nullopt;
}

void TensorTable::Reserve(size_t tensors, size_t text_bytes, size_t numbers) {
  rows_.reserve(tensors);
  text_.reserve(text_bytes);
  extents_.reserve(numbers);
}

void TensorTable::Clear() {
  rows_.clear();
  text_.clear();
  extents_.clear();
}

std::string FileEntry::DataKey() const { return "data/" + name.Hex() + ".safetensors"; }
std::string FileEntry::SumsKey() const { return "data/" + name.Hex() + ".crc"; }

void BoxTable::Add(const BoxEntry& entry, BoxView box) {
  rows_.push_back({entry, extents_.size(), static_cast<uint8_t>(box.dimensions())});
  extents_.insert(extents_.end(), box.offset.begin(), box.offset.end());
  extents_.insert(extents_.end(), box.length.begin(), box.length.end());
}

void BoxTable::Reserve(size_t boxes, size_t numbers) {
  rows_.reserve(boxes);
  extents_.reserve(numbers);
}

void BoxTable::Clear() {
  rows_.clear();
  extents_.clear();
}

}  // namespace headrace::checkpoint
