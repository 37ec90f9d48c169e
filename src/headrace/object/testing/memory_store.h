// An object store in memory: the reference that the conformance suite describes, and a double for
// tests of what stands on a store. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "headrace/object/object_store.h"

namespace headrace::object {

struct MemoryStoreOptions {
  std::string name = "mem://test";
  // What it can do; everything by default.
  Abilities abilities = {.list = true,
                         .write = true,
                         .upload = true,
                         .put_if_absent = true,
                         .put_if_match = true,
                         .get_if_match = true,
                         .put_mark = true};
  uint32_t threads = 4;  // that answer SubmitGets
};

std::shared_ptr<ObjectStore> MakeMemoryStore(const MemoryStoreOptions& options = {});

}  // namespace headrace::object
