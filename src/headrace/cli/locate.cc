#include "headrace/cli/locate.h"

#include <chrono>
#include <map>
#include <utility>

#include "headrace/env/console.h"

namespace headrace::cli {

void DeclareCache(Arguments* arguments, CacheArguments* cache) {
  arguments->Text("--cache-dir", &cache->directory,
                  "Read URLs through the cache in this folder of a local disk, or in several with "
                  "':' between; else HEADRACE_CACHE_DIR");
  arguments->Text(
      "--cache-bytes", &cache->bytes,
      "Most bytes of the cache; else HEADRACE_CACHE_BYTES, else what it was last given");
  arguments->Text("--cache-memory", &cache->memory_bytes,
                  "Memory for blocks, before the folder or, by plan, without one; else "
                  "HEADRACE_CACHE_MEMORY_BYTES, else 256 MiB");
}

Result<cache::BlockCacheOptions> ReadCacheArguments(const CacheArguments& cache) {
  std::map<std::string, std::string> named;
  for (const auto& [name, value] :
       {std::pair("cache_dir", &cache.directory), std::pair("cache_bytes", &cache.bytes),
        std::pair("cache_memory_bytes", &cache.memory_bytes)})
    if (!value->empty()) named.emplace(name, *value);
  return cache::ReadCacheSettings(named);
}

Status UseCache(Session* session) {
  HR_ASSIGN_OR_RETURN(cache::BlockCacheOptions options, ReadCacheArguments(session->cache));
  options.node.warn = [](const std::string& line) {
    WriteStderr(AsBytes("headrace: " + line + "\n"));
  };
  session->cache.used = cache::ReadThrough(options, &session->storage);
  return OkStatus();
}

void LeaveCache(const Session& session) {
  constexpr std::chrono::seconds kAtMost(5);
  if (session.cache.used && session.ctx.Check().ok()) (void)cache::WaitForCaches(kAtMost);
}

Result<object::Place> Locate(const Session& session, const std::string& operand) {
  if (!IsUrl(operand)) return object::Place{session.fs, operand};
  return object::LocateUrl(operand, session.storage);
}

Result<FileSystem*> LocateAll(const Session& session, std::vector<std::string>* operands) {
  FileSystem* common = session.fs;
  for (std::string& operand : *operands) {
    HR_ASSIGN_OR_RETURN(object::Place place, Locate(session, operand));
    // That of a URL finds files of this machine, too.
    if (place.fs != session.fs && common != session.fs && place.fs != common)
      return Status(Code::kInvalidArgument,
                    "URLs with a user or a query of their own cannot be used together: give one");
    if (place.fs != session.fs) common = place.fs;
    operand = std::move(place.path);
  }
  return common;
}

}  // namespace headrace::cli
