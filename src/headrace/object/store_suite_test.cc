// Runs the conformance suite on memory, on folders, and on the wrappers around them.
#include <utility>

#include "headrace/env/testing/memory_file_system.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/object/counted_store.h"
#include "headrace/object/dir/dir_store.h"
#include "headrace/object/retrying_store.h"
#include "headrace/object/testing/conformance.h"
#include "headrace/object/testing/faulty_store.h"
#include "headrace/object/testing/memory_store.h"
#include "headrace/object/throttled_store.h"

namespace headrace::object {
namespace {

StoreUnderTest OpenMemory() { return {MakeMemoryStore()}; }

// A store of objects that others have put: it only reads.
StoreUnderTest OpenReadOnly() {
  class Reader final : public ObjectStore {
   public:
    explicit Reader(std::shared_ptr<ObjectStore> base) : base_(std::move(base)) {}
    const std::string& name() const override { return base_->name(); }
    const Abilities& abilities() const override { return none_; }
    Result<ObjectInfo> Head(const std::string& key, const Context& ctx) override {
      return base_->Head(key, ctx);
    }
    void SubmitGets(std::vector<GetRequest> requests, std::vector<GetDone> dones,
                    const Context& ctx) override {
      for (size_t i = 0; i < requests.size(); ++i) {
        if (requests[i].if_match.empty())
          base_->SubmitGets({requests[i]}, {dones[i]}, ctx);
        else
          dones[i](Refused());
      }
    }
    Result<std::string> Put(const std::string&, Bytes, const PutOptions&, const Context&) override {
      return Refused();
    }
    Status Delete(const std::string&, const Context&) override { return Refused(); }
    Result<ListPage> List(const ListRequest&, const Context&) override { return Refused(); }
    Result<std::unique_ptr<Upload>> StartUpload(const std::string&, const Context&) override {
      return Refused();
    }
    Result<std::vector<PendingUpload>> ListUploads(const std::string&, const Context&) override {
      return Refused();
    }
    Status AbortUpload(const PendingUpload&, const Context&) override { return Refused(); }

   private:
    static Status Refused() { return Status(Code::kUnimplemented, "this store only reads"); }
    const std::shared_ptr<ObjectStore> base_;
    const Abilities none_;
  };
  auto writer = MakeMemoryStore();
  return {.store = std::make_shared<Reader>(writer),
          .put =
              [writer](const std::string& key, const std::string& content) {
                return writer->Put(key, AsBytes(content), {}, Context()).status();
              },
          .remove = [writer](const std::string& key) { return writer->Delete(key, Context()); }};
}

std::shared_ptr<ObjectStore> OpenDir(const std::string& folder, FileSystem* fs) {
  auto store = OpenDirStore(folder, {.fs = fs, .threads = 4});
  return store.ok() ? *store : nullptr;
}

StoreUnderTest OpenPosixDir() {
  auto directory = std::make_shared<TemporaryDirectory>();
  return {.store = OpenDir(directory->path(), PosixFileSystem()), .owner = directory};
}

StoreUnderTest OpenMemoryDir() {
  auto files = std::make_shared<MemoryFileSystem>();
  (void)files->MakeDirectories("/store");
  return {.store = OpenDir("/store", files.get()), .owner = files};
}

StoreUnderTest OpenFaulty() { return {std::make_shared<FaultyStore>(MakeMemoryStore())}; }

// Each fifth request fails. (Not fewer: a Put if absent of the same bytes as before would then be
// taken for its own, as retrying_store.h says.)
StoreUnderTest OpenRetrying() {
  auto faulty = std::make_shared<FaultyStore>(MakeMemoryStore());
  for (size_t operation = 0; operation < kNumStoreOperations; ++operation) {
    for (uint64_t nth = 5; nth < 3000; nth += 5)
      faulty->FailNth(static_cast<StoreOperation>(operation), nth,
                      Error(Code::kUnavailable, "503 slow down"));
  }
  RetryOptions options;
  options.first_pause = std::chrono::microseconds(10);
  options.longest_pause = std::chrono::microseconds(100);
  return {MakeRetryingStore(faulty, options)};
}

StoreUnderTest OpenCounted() {
  return {MakeCountedStore(MakeMemoryStore(), std::make_shared<StoreCounters>())};
}

// Fast enough for a test, and slow enough that most reads wait for their turn.
StoreUnderTest OpenThrottled() {
  return {MakeThrottledStore(MakeMemoryStore(), std::make_shared<ByteRate>(uint64_t{1} << 30))};
}

constexpr Abilities kEverything = {.list = true,
                                   .write = true,
                                   .upload = true,
                                   .put_if_absent = true,
                                   .put_if_match = true,
                                   .get_if_match = true,
                                   .put_mark = true};

Abilities Folder() {
  Abilities abilities = kEverything;
  abilities.strict_keys = abilities.put_mark = false;
  return abilities;
}

const bool kRegistered =
    RegisterObjectStoreSuite("memory", {.abilities = kEverything, .open = OpenMemory}) &&
    RegisterObjectStoreSuite("read_only", {.abilities = {}, .open = OpenReadOnly}) &&
    RegisterObjectStoreSuite("dir", {.abilities = Folder(), .open = OpenPosixDir}) &&
    RegisterObjectStoreSuite("dir_in_memory",
                             {.abilities = Folder(), .open = OpenMemoryDir, .many_keys = 500}) &&
    RegisterObjectStoreSuite("faulty", {.abilities = kEverything, .open = OpenFaulty}) &&
    RegisterObjectStoreSuite("retrying", {.abilities = kEverything, .open = OpenRetrying}) &&
    RegisterObjectStoreSuite("counted", {.abilities = kEverything, .open = OpenCounted}) &&
    RegisterObjectStoreSuite("throttled", {.abilities = kEverything, .open = OpenThrottled});

}  // namespace
}  // namespace headrace::object
