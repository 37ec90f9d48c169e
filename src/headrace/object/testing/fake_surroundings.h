// A world for the driver s3 that a test makes up: variables, files, programs, time. For tests only.
// Thread-safe once it is set up; the clock may be moved at any time.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headrace/env/testing/memory_file_system.h"
#include "headrace/object/s3/settings.h"

namespace headrace::object {

struct FakeSurroundings {
  std::map<std::string, std::string> variables;
  MemoryFileSystem files;
  // What a program prints; without it none can be run.
  std::function<Result<CommandOutput>(const std::vector<std::string>&)> run_command;
  std::atomic<int64_t> now_ns{int64_t{1'800'000'000} * 1'000'000'000};

  void WriteFile(const std::string& path, const std::string& content) {
    (void)files.MakeDirectories(std::string(DirectoryName(path)));
    (void)files.WriteAtomically(path, AsBytes(content));
  }

  // Must not outlive this.
  S3Surroundings Get() {
    S3Surroundings made;
    made.variable = [this](const std::string& name) -> std::optional<std::string> {
      auto found = variables.find(name);
      if (found == variables.end()) return std::nullopt;
      return found->second;
    };
    made.run_command = [this](const std::vector<std::string>& arguments, uint64_t,
                              const Context& ctx) -> Result<CommandOutput> {
      HR_RETURN_IF_ERROR(ctx.Check());
      if (!run_command) return Error(Code::kNotFound, "no program in this test");
      return run_command(arguments);
    };
    made.wall_clock_ns = [this] { return now_ns.load(); };
    made.files = &files;
    made.home = "/home/me";
    return made;
  }
};

}  // namespace headrace::object
