// How Python callers reach what URLs name: their storage_options, and the cache of this node before
// it. Call with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <string>

#include "headrace/cache/cache_settings.h"

namespace headrace::python {

// Warnings of the cache go to standard error, a line each. Throws as cache::ReadStorageSettings
// fails.
cache::StorageSettings ReadStorage(const std::map<std::string, std::string>& options);

// The counters by their names.
nanobind::dict ToDict(const cache::CacheCounters& counters);

}  // namespace headrace::python
