// Objects by key: what a bucket, or a folder that stands for one, can do. Drivers are mem/, dir/,
// s3/ and https/; wrappers add retries, limits and timing. object/testing/conformance.h is the
// contract as tests: each driver names its Abilities there, and an ability claimed is an ability
// tested.
//
// Keys are any bytes (1 to 1,024 of them), compared as bytes; "a//b", "a/../b" and "/a" are keys
// like others and never leave the store. All objects here are thread-safe.
//
// Failures of every call, besides those named there:
//   kUnavailable        may work later: 5xx, 429, no connection, a body that was cut. Retried by
//                       RetryingStore, never told as kNotFound.
//   kPermissionDenied   no or wrong credentials, or not allowed: says what was asked for.
//   kDataLoss           bytes differ from a checksum or a length that the store promised.
//   kDeadlineExceeded, kCancelled  from the Context.
// Each names store and key.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"

namespace headrace::object {

// What a store can do beyond reading. What is not named is refused with kUnimplemented.
struct Abilities {
  bool list = false;            // List
  bool write = false;           // Put, Delete
  bool upload = false;          // StartUpload, ListUploads, AbortUpload
  bool put_if_absent = false;   // PutOptions::if_absent, one winner among racing writers
  bool put_if_match = false;    // PutOptions::if_match
  bool get_if_match = false;    // GetRequest::if_match
  bool put_mark = false;        // PutOptions::mark is kept, and Head tells it
  bool ordered_list = true;     // List goes by the keys' bytes; false: in an order of its own
  bool strict_keys = true;      // false: some keys ("." parts, empty parts, no UTF-8) are refused
  uint64_t min_part_bytes = 0;  // of an upload's parts but the last
  uint64_t max_parts = 10000;
};

struct ObjectInfo {
  std::string key;
  uint64_t size_bytes = 0;
  std::string etag;       // opaque, without quotes; another content has another one. May be empty
  int64_t mtime_ns = 0;   // since 1970; 0 = not known
  std::string mark = {};  // PutOptions::mark, from Head alone
};

struct GetRequest {
  std::string key;
  uint64_t offset = 0;
  MutableBytes out;      // filled whole; must outlive the request
  std::string if_match;  // only while the object still has this etag; empty: whatever it is
};

struct PutOptions {
  bool if_absent = false;  // only where no object has the key
  std::string if_match;    // only where the object has this etag; empty: no condition
  // Kept beside the object, not in it, until it is written again: whose write it was, also among
  // writes of the same bytes. At most 64 letters, digits and '-'. Passed over without put_mark.
  std::string mark = {};
};

// A part of a listing, in the order of the keys' bytes (but see Abilities::ordered_list).
struct ListPage {
  std::vector<ObjectInfo> objects;    // without those below `prefixes`
  std::vector<std::string> prefixes;  // with a delimiter: what the other keys have in common
  std::string next;                   // opaque, for ListRequest::token; empty: the listing is whole
};

struct ListRequest {
  std::string prefix;
  std::string delimiter;  // "" or "/"
  std::string after;      // only keys greater than this one
  std::string token;      // ListPage::next of the page before
  uint32_t max = 1000;
};

// A large object written in parts. Parts may be sent in any order and from several threads.
// Destroying it before Complete gives up the parts as far as the store can be reached.
class Upload {
 public:
  virtual ~Upload() = default;
  // Part `number` counts from 1. Sending one again replaces it.
  virtual Status PutPart(uint32_t number, Bytes data, const Context& ctx) = 0;
  // Makes the object of parts 1..n: returns its etag. kFailedPrecondition when one is missing.
  virtual Result<std::string> Complete(uint32_t num_parts, const Context& ctx) = 0;
  virtual Status Abort(const Context& ctx) = 0;
};

// An upload that was begun and not ended.
struct PendingUpload {
  std::string key, id;
  int64_t started_ns = 0;  // since 1970
};

class ObjectStore {
 public:
  using GetDone = std::function<void(Result<ObjectInfo>)>;

  virtual ~ObjectStore() = default;
  // "s3://bucket", for messages: without secrets.
  virtual const std::string& name() const = 0;
  virtual const Abilities& abilities() const = 0;

  // kNotFound.
  virtual Result<ObjectInfo> Head(const std::string& key, const Context& ctx) = 0;

  // Fills request.out from request.offset. The object's size and etag come along where the store
  // tells them.
  //   kNotFound            no object has the key.
  //   kOutOfRange          the range is not wholly inside the object: names the size.
  //   kFailedPrecondition  if_match: the object was replaced.
  // An `out` of no bytes is a Head.
  Result<ObjectInfo> Get(GetRequest request, const Context& ctx);
  // Fills request.out at once where the store has the bytes in memory, of the version that
  // request.if_match names: no waiting, no other thread. False where it has not, and most stores
  // never have: `out` is unspecified then, and Get or SubmitGets brings it.
  virtual bool TryGet(const GetRequest& /*request*/, const Context& /*ctx*/) { return false; }
  // Says that a range of this version of an object, or parts of it, will be read soon. A hint,
  // which returns at once; most stores do nothing about it. Only `ctx.caching` counts.
  virtual void WillGet(const ObjectInfo&, uint64_t /*offset*/, uint64_t /*length*/,
                       const Context&) {}
  // Starts reads and returns; `done` is called once for each, on a thread of the store, in any
  // order, and must not block. requests.size() == dones.size().
  virtual void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                          const Context& ctx) = 0;

  // What was read of this version does not match a checksum of the reader's: a cache forgets it.
  virtual void Distrust(const ObjectInfo& /*object*/, uint64_t /*offset*/, uint64_t /*bytes*/) {}

  // Makes or replaces an object; durable and readable by all when this returns. Returns its etag.
  //   kAlreadyExists       if_absent, and the key is taken.
  //   kFailedPrecondition  if_match, and the object is another one or is gone.
  virtual Result<std::string> Put(const std::string& key, Bytes data, const PutOptions& options,
                                  const Context& ctx) = 0;
  // OK where nothing has the key.
  virtual Status Delete(const std::string& key, const Context& ctx) = 0;
  virtual Result<ListPage> List(const ListRequest& request, const Context& ctx) = 0;

  virtual Result<std::unique_ptr<Upload>> StartUpload(const std::string& key,
                                                      const Context& ctx) = 0;
  virtual Result<std::vector<PendingUpload>> ListUploads(const std::string& prefix,
                                                         const Context& ctx) = 0;
  virtual Status AbortUpload(const PendingUpload& upload, const Context& ctx) = 0;
};

}  // namespace headrace::object
