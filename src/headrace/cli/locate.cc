#include "headrace/cli/locate.h"

#include <utility>

namespace headrace::cli {

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
