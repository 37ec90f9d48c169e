// The files in which AWS tools keep profiles: ~/.aws/config and ~/.aws/credentials. Not
// thread-safe: one owner at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/object/s3/settings.h"

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

// A profile as both files have it.
struct Profile {
  std::string name;
  std::string credentials_path, config_path;
  ProfileFile::Section credentials, config;  // empty where the file has no such section
  ProfileFile::Section services;             // of "[services x]", which the profile names
  bool found = false;                        // one of the files has it

  // The value in the credentials file, else in the other one; none when it is empty or missing.
  std::optional<std::string> Value(const std::string& name) const;
  // "profile 'x' (PATH)": the file that has `name`.
  std::string Describe(const std::string& name) const;
};

// Reads both files; one that is not there is empty.
//   kInvalidArgument  what is wrong in which file.
//   kIoError, kPermissionDenied  it is there and cannot be read.
Result<Profile> LoadProfile(const std::string& name, const S3Surroundings& surroundings);

}  // namespace headrace::object
