// Reads the protobuf message tf.train.Example where it lies in a file: for each feature the place
// of its values, without reading large values. Own bounded reader of the wire format: unknown
// fields are skipped, groups are refused, parts that come twice count as protobuf says (the last
// feature of a name wins). Not thread-safe: one owner at a time. docs/formats/tfrecord.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/dataset/file_window.h"

namespace headrace::dataset {

enum class TfFeatureKind : uint8_t { kNone, kBytes, kFloat, kInt64 };

// A stretch of values of one feature.
struct TfValues {
  uint64_t offset = 0, length = 0;  // in the file
  uint64_t count = 1;               // values in it: 1 of bytes; of numbers, packed, any number
};

struct TfFeature {
  std::string name;  // bytes
  TfFeatureKind kind = TfFeatureKind::kNone;
  // In TfExample's list of values. Numbers that are stored packed have one stretch.
  size_t first_values = 0, num_values = 0;
};

class TfExample {
 public:
  // More is refused, since an index cannot hold it.
  static constexpr size_t kMaxFeatures = 4096, kMaxNameBytes = 65535;
  static constexpr size_t kMaxStretches = size_t{1} << 20;

  // Reads the message that lies at [offset, offset + length) of the window's file, which is inside
  // the file. Memory is reused from message to message.
  //   kDataLoss          no such message: says what was expected and at which offset of the file.
  //   kUnimplemented     groups, or more than the limits above.
  // Also the window's failures.
  Status Parse(FileWindow* window, uint64_t offset, uint64_t length);

  // Of the last Parse, each name once, in the order in which they lie in the file.
  const std::vector<TfFeature>& features() const { return features_; }
  const TfValues* values(const TfFeature& feature) const {
    return values_.data() + feature.first_values;
  }

 private:
  struct Parser;
  void DropRepeated();

  std::vector<TfFeature> features_;
  std::vector<TfValues> values_;
  std::vector<uint32_t> by_name_;
};

}  // namespace headrace::dataset
