// The quarantine list: one line of JSON for each bad sample, appended to a file as they are met.
// For one thread. Movable.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "headrace/base/status.h"
#include "headrace/env/file.h"
#include "headrace/loader/bad_samples.h"

namespace headrace::loader {

class Quarantine {
 public:
  // An empty path gives a list that is not kept. Fails when the file cannot be written.
  static Result<Quarantine> Open(const std::string& path);
  // Appends the samples' lines. Whole lines only, so that several ranks may share a file.
  Status Append(std::span<const BadSample> samples, OnError policy);

 private:
  std::unique_ptr<WritableFile> file_;
};

}  // namespace headrace::loader
