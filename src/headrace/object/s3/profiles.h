// The files in which AWS tools keep profiles: ~/.aws/config and ~/.aws/credentials. Not
// thread-safe: one owner at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/status.h"

namespace headrace::object {

// Sections of "name = value" lines. Names of values are in lower case; those of a nested group
// ("s3 =" with indented lines below it) are "s3.addressing_style".
class ProfileFile {
 public:
  using Section = std::map<std::string, std::string>;

  // Reads a whole file. Lines that begin with '#' or ';' are skipped, and so is what follows such a
  // mark behind a blank, but for credential_process. A section that comes twice is joined.
  // kInvalidArgument names the line, not what is in it: it may be secret.
  static Result<ProfileFile> Parse(std::string_view text);

  // The section "[title]"; null when there is none.
  const Section* Find(std::string_view title) const;

 private:
  std::map<std::string, Section, std::less<>> sections_;
};

}  // namespace headrace::object
