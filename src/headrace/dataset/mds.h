// The index.json of an MDS dataset (version 2, as MosaicML Streaming writes it): its shards, their
// files and columns. Values: one owner at a time; any number of readers. docs/formats/mds.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headrace/base/status.h"
#include "headrace/dataset/array_form.h"
#include "headrace/dataset/unpack.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

inline constexpr std::string_view kMdsIndexName = "index.json";

// How the bytes of a column's values are to be taken.
struct MdsEncoding {
  enum class Form : uint8_t {
    kBytes,    // as they are: bytes, text, JSON, an encoded image
    kNumber,   // one element
    kNdarray,  // an array, behind what of its type and shape is not given here
    kPil,      // bare pixels, behind their size and mode
  };
  Form form = Form::kBytes;
  std::optional<ElementType> element;          // kNumber; of kNdarray when it is fixed
  std::optional<std::vector<uint64_t>> shape;  // of kNdarray when it is fixed

  // Reads the name that index.json gives. kUnimplemented for pickles and for unknown names: says
  // what to do. kInvalidArgument for an ndarray whose type or shape makes no sense.
  static Result<MdsEncoding> Parse(std::string_view name);
  // Bytes of every value, when the encoding fixes them.
  std::optional<uint64_t> FixedBytes() const;
};

struct MdsColumn {
  std::string name;
  std::string encoding_name;
  MdsEncoding encoding;
  std::optional<uint64_t> fixed_bytes;  // empty: each sample states its own
};

struct MdsFile {
  std::string name;  // relative to the dataset's folder
  uint64_t bytes = 0;
  std::vector<std::pair<std::string, std::string>> hashes;  // algorithm, hex digits
};

struct MdsShard {
  MdsFile raw;
  std::optional<MdsFile> packed;
  Compression compression = Compression::kNone;  // of `packed`
  uint64_t samples = 0;
  std::vector<MdsColumn> columns;  // in the order in which they lie in a sample

  // Stands for the shard's samples in the dataset's version: a CRC32C over its name, size, hashes,
  // number of samples and columns, in the canonical form of docs/formats/mds.md.
  uint32_t Identity() const;
};

struct MdsIndex {
  std::vector<MdsShard> shards;

  // Reads the text of an index.json, called `file_name` in messages.
  //   kInvalidArgument    not what an index.json holds: names the member.
  //   kUnimplemented      another version, a shard that is not MDS, an encoding or compression that
  //                       is not supported: names shard and column.
  static Result<MdsIndex> FromJson(std::string_view text, std::string_view file_name);
  // True when the text is an object with "shards": what FromJson is meant for.
  static bool LooksLikeOne(std::string_view text);
  // All column names, sorted by bytes.
  std::vector<std::string> ColumnNames() const;
};

// The text of the folder's index.json, when it looks like one of MDS; else empty. Also the file
// system's failures, but a file that is not there.
Result<std::string> ReadMdsIndexText(FileSystem* fs, const std::string& folder);

}  // namespace headrace::dataset
