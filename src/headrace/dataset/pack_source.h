// Finds the samples of a source that is to be packed, by the same rules by which a data set in
// place is indexed (index_build.h). Reads names, sizes and tar headers; no data of samples. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/dataset/pack_list.h"
#include "headrace/env/file.h"

namespace headrace::dataset {

// What the sources are is told by the first that fits: a folder with a manifest (its shards, in its
// order), a folder with *.tar files in it (all of them, by name), any other folder (one sub-folder
// a class), a .csv or .jsonl list of files, or else tar files. Members of tars with equal keys are
// one sample, wherever they stand.
//   kNotFound, kPermissionDenied, kIoError  names the path.
//   kInvalidArgument  no sample, one field twice, several sources that are not all tars.
//   kDataLoss         a tar is damaged: names file and offset. With `skip_damaged` only what the
//                     damage hit is missing, and left_out says so.
//   kUnimplemented    a sparse member in a tar, or a compressed tar.
Result<PackList> ListSources(FileSystem* fs, const std::vector<std::string>& sources,
                             bool skip_damaged, const Context& ctx);

}  // namespace headrace::dataset
