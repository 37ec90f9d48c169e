// The conformance suite of ObjectStore: what every store must do, the real ones and the doubles
// alike. An ability claimed is an ability tested; one that is not claimed must be refused. A test
// program registers a store with one call at namespace scope:
//
//   const bool kRegistered = RegisterObjectStoreSuite("memory", {.abilities = ..., .open = Open});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "headrace/object/object_store.h"

namespace headrace::object {

struct StoreUnderTest {
  std::shared_ptr<ObjectStore> store;  // empty
  // Makes and removes objects by another way: only for a store without Abilities::write.
  std::function<Status(const std::string& key, const std::string& content)> put = {};
  std::function<Status(const std::string& key)> remove = {};
  std::shared_ptr<void> owner = {};  // whatever must live as long as the test
};

struct ConformanceOptions {
  Abilities abilities;  // what the store must claim, no more and no less
  // A fresh, empty store for each test. It may share a bucket with others behind a prefix.
  std::function<StoreUnderTest()> open;
  // Keys are text in UTF-8 without control characters; others are refused (kInvalidArgument).
  bool text_keys_only = false;
  bool has_etags = true;  // Head, Get, Put and List tell one for each object
  uint32_t max_key_bytes = 1024;
  uint32_t many_keys = 2500;  // in the test of long listings
  uint32_t num_threads = 8;   // that race with each other
};

// Registers the tests ObjectStoreSuite/<name>.<test> with GoogleTest. Returns true.
bool RegisterObjectStoreSuite(const std::string& name, const ConformanceOptions& options);

}  // namespace headrace::object
