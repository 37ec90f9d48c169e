// Data files that lie in memory: the nearest tier. Their bytes stay where they are, in the arena;
// only what lies elsewhere (headers, checksums) is copied. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/checkpoint/data_files.h"

namespace headrace::checkpoint {

class MemoryFiles final : public DataFiles {
 public:
  // A file's bytes, one part behind the other.
  struct Parts {
    std::vector<Bytes> parts;
    uint64_t bytes = 0;
  };

  // Parts inside `kept` are referred to and must stay as they are while this object, or a file
  // opened here, is in use; all others are copied.
  explicit MemoryFiles(Bytes kept) : kept_(kept) {}

  const std::string& name() const override { return name_; }
  Status CheckRoom(uint64_t, const Context&) override { return OkStatus(); }
  Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                     const Context& ctx) override;
  Result<bool> WriteFrom(const std::string& key, uint64_t bytes, const NextPiece& next,
                         const Context& ctx) override;
  Status Sync(const Context&) override { return OkStatus(); }
  // kNotFound; kDataLoss when it has another length.
  Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t bytes,
                                         const Context& ctx) override;

  // The parts of a file; valid as long as this object. kNotFound.
  Result<Parts> PartsOf(const std::string& key);
  // Of all files, ascending.
  std::vector<std::string> Keys();

 private:
  Bytes Keep(Bytes part) HR_REQUIRES(mu_);

  const Bytes kept_;
  const std::string name_ = "memory";
  Mutex mu_;
  std::map<std::string, std::shared_ptr<const Parts>> files_ HR_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<std::byte[]>> copies_ HR_GUARDED_BY(mu_);
};

}  // namespace headrace::checkpoint
