// One file system for all places: files of this machine by their paths, and objects by URL. Drivers
// are chosen by scheme, from one table:
//
//   file://          the operating system's files
//   s3://BUCKET      object/s3
//   https://HOST, http://HOST   object/https: reads only, cannot list
//   peer://ADDRESS:PORT         object/peer: what another node keeps (`headrace ckpt serve`)
//
// A path of this file system is a path as the system knows it, or a URL whose path is not encoded:
// "https://host/a b". Stores and HTTP clients are made when first used, shared by all that have the
// same settings, and kept until the process ends. A forked child makes its own. Thread-safe.
#pragma once

#include <string>

#include "headrace/env/file.h"
#include "headrace/object/counted_store.h"
#include "headrace/object/object_file_system.h"
#include "headrace/object/url_settings.h"

namespace headrace::object {

// The file system for these settings; lives for ever. Paths with a scheme that is none of the table
// are refused with kInvalidArgument, which lists the table.
FileSystem* UrlFileSystem(const UrlSettings& settings);

// What was asked of the stores of these settings by this process so far.
struct StoreTotals {
  uint64_t gets = 0, heads = 0, lists = 0, writes = 0;
  uint64_t failures = 0, throttled = 0, retries = 0;
  uint64_t bytes_read = 0, bytes_written = 0;
  uint64_t busy_ns = 0, back_off_ns = 0;
};
StoreTotals TotalsOfStores(const UrlSettings& settings);
// The same of all stores of this process, with what each call took (StoreCounters::stages).
StoreTotals TotalsOfAllStores(StageReport* stages);

// Where something is: a path of a file system that lives for ever.
struct Place {
  FileSystem* fs = nullptr;
  std::string path;
};

// The place that `text` names, as a person writes it: a path, or a URL. Of http and https the path
// is decoded (%20), and user, password and query go into the file system's settings, so that they
// are in no path and no message. Asks nothing of the place yet. kInvalidArgument: a scheme that is
// none, or no URL.
Result<Place> LocateUrl(const std::string& text, const UrlSettings& settings);

// The store behind a URL, and the key that its path is. kUnimplemented for a scheme without one.
Result<StorePlace> OpenStore(const std::string& url, const UrlSettings& settings);

}  // namespace headrace::object
