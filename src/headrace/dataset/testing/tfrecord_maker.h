// Makes TFRecord files of tf.train.Example messages for tests, in the simplest way. For tests only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/dataset/index_format.h"
#include "headrace/dataset/tfrecord.h"

namespace headrace::dataset {

// One length-delimited field of a protobuf message.
inline std::string ProtoField(uint32_t number, std::string_view content) {
  std::string out;
  index_format::PutVarint(number << 3 | 2, &out);
  index_format::PutVarint(content.size(), &out);
  return out.append(content);
}

inline std::string BytesFeature(const std::vector<std::string>& values) {
  std::string list;
  for (const std::string& value : values) list += ProtoField(1, value);
  return ProtoField(1, list);
}

inline std::string FloatFeature(const std::vector<float>& values) {
  std::string packed(values.size() * 4, '\0');
  for (size_t i = 0; i < values.size(); ++i) StoreLittle(&packed[i * 4], values[i]);
  return ProtoField(2, values.empty() ? "" : ProtoField(1, packed));
}

inline std::string PackedVarints(const std::vector<int64_t>& values) {
  std::string packed;
  for (int64_t value : values) index_format::PutVarint(static_cast<uint64_t>(value), &packed);
  return packed;
}

inline std::string Int64Feature(const std::vector<int64_t>& values) {
  return ProtoField(3, values.empty() ? "" : ProtoField(1, PackedVarints(values)));
}

// An entry of the map of features; `feature` is one of the above.
inline std::string MapEntry(std::string_view name, std::string_view feature) {
  return ProtoField(1, ProtoField(1, name) + ProtoField(2, feature));
}

using Features = std::vector<std::pair<std::string, std::string>>;  // name, feature

inline std::string MakeExample(const Features& features) {
  std::string map;
  for (const auto& [name, feature] : features) map += MapEntry(name, feature);
  return ProtoField(1, map);
}

// The frame around one record.
inline std::string MakeRecord(std::string_view data) {
  std::string out(kTfHeaderBytes, '\0');
  StoreLittle<uint64_t>(out.data(), data.size());
  StoreLittle(&out[8], MaskCrc32c(Crc32c(AsBytes(out).first(8))));
  out.append(data).append(kTfFooterBytes, '\0');
  StoreLittle(&out[out.size() - kTfFooterBytes], MaskCrc32c(Crc32c(AsBytes(data))));
  return out;
}

inline std::string MakeTfRecord(const std::vector<std::string>& messages) {
  std::string out;
  for (const std::string& message : messages) out += MakeRecord(message);
  return out;
}

}  // namespace headrace::dataset
