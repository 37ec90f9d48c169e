// Finds the samples of a source that is to be packed, by the same rules by which a data set in
// place is indexed (index_build.h). Reads names, sizes and headers; data of samples only where the
// source has checksums of its own, which are checked here: of TFRecords, and of MDS shards that
// state hashes. Any thread.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/pack_list.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// What the sources are is told by the first that fits: a folder with a manifest (its shards, in its
// order), a folder with an MDS index.json, a folder with *.tar files or TFRecords in it (all of
// them, by name), any other folder (one sub-folder a class), a .csv or .jsonl list of files, or
// else tar and TFRecord files. Members of shards with equal keys are one sample, wherever they
// stand.
//
// Fields of TFRecords and MDS keep what a reader gets of them: bare numbers become .npy arrays. A
// '/' in a field's name becomes a '.', since it could not be a part of a member's name.
//   kNotFound, kPermissionDenied, kIoError  names the path.
//   kInvalidArgument  no sample, one field twice, several sources that are not all shards.
//   kDataLoss         a shard is damaged: names file and offset. With `skip_damaged` only what the
//                     damage hit is missing, and left_out says so.
//   kUnimplemented    a sparse member in a tar, a compressed tar, an MDS encoding that is not read.
Result<PackList> ListSources(FileSystem* fs, const std::vector<std::string>& sources,
                             bool skip_damaged, const Context& ctx);

}  // namespace headrace::dataset
