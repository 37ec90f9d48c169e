// How the tables of a manifest are coded in its sections; docs/formats/checkpoint.md says it in
// words. Only for manifest.cc. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/checkpoint/manifest_tables.h"

namespace headrace::checkpoint {

// kInvalidArgument: what no manifest may hold.
Result<std::string> EncodeTensors(const TensorTable& tensors);
Result<std::string> EncodeFiles(const std::vector<FileEntry>& files);
Result<std::string> EncodeBoxes(const BoxTable& boxes, const TensorTable& tensors,
                                const std::vector<FileEntry>& files);

// kDataLoss: the message says what is wrong, without the file.
Result<TensorTable> DecodeTensors(Bytes body);
Result<std::vector<FileEntry>> DecodeFiles(Bytes body);
Result<BoxTable> DecodeBoxes(Bytes body, const TensorTable& tensors,
                             const std::vector<FileEntry>& files);

}  // namespace headrace::checkpoint
