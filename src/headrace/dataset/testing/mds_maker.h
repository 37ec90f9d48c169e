// Makes MDS datasets for tests, in the simplest way. For tests only.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/json.h"

namespace headrace::dataset {

struct MdsTestColumn {
  std::string name, encoding;
  std::optional<uint64_t> size = {};  // of every value
};

// The bytes of a shard. Each sample has the bytes of each column's value.
inline std::string MakeMdsShard(const std::vector<MdsTestColumn>& columns,
                                const std::vector<std::vector<std::string>>& samples,
                                std::string_view settings = R"({"a": "setting"})") {
  std::string data;
  std::vector<uint32_t> offsets;
  const size_t begin = 4 + 4 * (samples.size() + 1) + settings.size();
  auto put = [](uint32_t number, std::string* out) {
    char word[4];
    StoreLittle(word, number);
    out->append(word, 4);
  };
  for (const std::vector<std::string>& sample : samples) {
    offsets.push_back(static_cast<uint32_t>(begin + data.size()));
    for (size_t c = 0; c < columns.size(); ++c)
      if (!columns[c].size) put(static_cast<uint32_t>(sample[c].size()), &data);
    for (const std::string& value : sample) data += value;
  }
  offsets.push_back(static_cast<uint32_t>(begin + data.size()));
  std::string shard;
  put(static_cast<uint32_t>(samples.size()), &shard);
  for (uint32_t offset : offsets) put(offset, &shard);
  return shard.append(settings).append(data);
}

struct MdsTestShard {
  std::string name = "shard.00000.mds";
  uint64_t samples = 0, bytes = 0;
  Json hashes = Json::MakeObject();
  std::string compression = {};  // with these, the shard is packed
  uint64_t packed_bytes = 0;
  Json packed_hashes = Json::MakeObject();
};

inline Json MdsShardJson(const std::vector<MdsTestColumn>& columns, const MdsTestShard& shard) {
  Json names = Json::MakeArray(), encodings = Json::MakeArray(), sizes = Json::MakeArray();
  for (const MdsTestColumn& column : columns) {
    names.Append(column.name);
    encodings.Append(column.encoding);
    sizes.Append(column.size ? Json(*column.size) : Json());
  }
  Json json = Json::MakeObject();
  json.Set("column_names", names).Set("column_encodings", encodings).Set("column_sizes", sizes);
  json.Set("format", "mds").Set("version", 2).Set("samples", shard.samples);
  json.Set("hashes", Json::MakeArray()).Set("size_limit", 1 << 26);
  json.Set("raw_data", Json::MakeObject()
                           .Set("basename", shard.name)
                           .Set("bytes", shard.bytes)
                           .Set("hashes", shard.hashes));
  const bool packed = !shard.compression.empty();
  json.Set("compression", packed ? Json(shard.compression) : Json());
  json.Set("zip_data", !packed ? Json()
                               : Json::MakeObject()
                                     .Set("basename", shard.name + ".packed")
                                     .Set("bytes", shard.packed_bytes)
                                     .Set("hashes", shard.packed_hashes));
  return json;
}

inline std::string MakeMdsIndex(const std::vector<MdsTestColumn>& columns,
                                const std::vector<MdsTestShard>& shards) {
  Json list = Json::MakeArray();
  for (const MdsTestShard& shard : shards) list.Append(MdsShardJson(columns, shard));
  return Json::MakeObject().Set("version", 2).Set("shards", list).Dump();
}

}  // namespace headrace::dataset
