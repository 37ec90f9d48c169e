#include "headrace/loader/quarantine.h"

#include "headrace/base/bytes.h"

namespace headrace::loader {

Result<Quarantine> Quarantine::Open(const std::string& path) {
  Quarantine list;
  if (!path.empty()) {
    HR_ASSIGN_OR_RETURN(list.file_, PosixFileSystem()->OpenForAppend(path));
  }
  return list;
}

Status Quarantine::Append(std::span<const BadSample> samples, OnError policy) {
  if (!file_ || samples.empty()) return OkStatus();
  std::string lines;
  for (const BadSample& sample : samples) lines += sample.ToJsonLine(policy) + "\n";
  return std::move(file_->Append(AsBytes(lines))).Prefix("writing the quarantine list");
}

}  // namespace headrace::loader
