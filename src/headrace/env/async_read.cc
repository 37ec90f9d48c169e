#include "headrace/env/async_read.h"

#include "headrace/base/text.h"
#include "headrace/env/process.h"
#include "headrace/env/thread_reader.h"
#include "headrace/env/uring_reader.h"

namespace headrace {

namespace {

constexpr uint32_t kMaxDepth = 4096;

// What the user wants; none: what works.
Result<std::optional<AsyncReader::Driver>> DriverFromEnvironment() {
  std::optional<std::string> value = EnvironmentVariable("HEADRACE_IO");
  if (!value) return std::optional<AsyncReader::Driver>();
  for (auto driver : {AsyncReader::Driver::kUring, AsyncReader::Driver::kThreads})
    if (*value == DriverName(driver)) return std::optional(driver);
  return Error(Code::kInvalidArgument, "HEADRACE_IO is '{}': expected uring or threads",
               EscapeText(*value));
}

}  // namespace

Result<std::unique_ptr<AsyncReader>> AsyncReader::Create(const Options& options) {
  if (options.depth == 0 || options.depth > kMaxDepth || options.threads == 0)
    return Error(Code::kInvalidArgument, "{} reads at once by {} threads: expected 1 to {} and 1",
                 options.depth, options.threads, kMaxDepth);
  std::optional<Driver> driver = options.driver;
  if (!driver) {
    HR_ASSIGN_OR_RETURN(driver, DriverFromEnvironment());
  }
  if (driver != Driver::kThreads) {
    auto uring = UringReader::Create(options);
    if (uring.ok()) return *std::move(uring);
    if (driver) return std::move(uring).status();
  }
  return std::make_unique<ThreadReader>(options);
}

std::string_view DriverName(AsyncReader::Driver driver) {
  return driver == AsyncReader::Driver::kUring ? "uring" : "threads";
}

}  // namespace headrace
