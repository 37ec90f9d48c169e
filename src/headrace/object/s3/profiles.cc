#include "headrace/object/s3/profiles.h"

#include <algorithm>

#include "headrace/base/ascii.h"
#include "headrace/base/text.h"

namespace headrace::object {

namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// "profile   x" and "profile x" are one title.
std::string Title(std::string_view text) {
  std::string title;
  for (char c : Trim(text)) {
    if (IsBlank(c) && !title.empty() && title.back() == ' ') continue;
    title.push_back(IsBlank(c) ? ' ' : c);
  }
  return title;
}

// The path in `variable`, else that below the home folder. Empty when there is neither.
std::string PathOf(const S3Surroundings& surroundings, const std::string& variable,
                   const std::string& below_home) {
  if (auto path = surroundings.variable(variable)) {
    if (path->starts_with("~/")) return JoinPath(surroundings.home, path->substr(2));
    return *path;
  }
  return surroundings.home.empty() ? "" : JoinPath(surroundings.home, below_home);
}

Result<ProfileFile> LoadFile(const std::string& path, FileSystem* files) {
  constexpr uint64_t kMaxBytes = 1 << 20;
  // How people say that there is none.
  if (path.empty() || path == "/dev/null") return ProfileFile();
  auto text = files->ReadWhole(path, kMaxBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return ProfileFile();
  if (!text.ok()) return std::move(text).status();
  auto file = ProfileFile::Parse(*text);
  if (!file.ok()) return std::move(file).status().Prefix(EscapeText(path));
  return file;
}

std::string_view WithoutComment(std::string_view value) {
  for (size_t i = 1; i < value.size(); ++i)
    if ((value[i] == '#' || value[i] == ';') && IsBlank(value[i - 1])) return value.substr(0, i);
  return value;
}

}  // namespace

Result<ProfileFile> ProfileFile::Parse(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  ProfileFile file;
  Section* section = nullptr;
  std::string group;  // "s3" below "s3 ="
  uint64_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    bool indented = !line.empty() && IsBlank(line.front());
    line = Trim(line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      size_t end = line.find(']');
      if (end == std::string_view::npos)
        return Error(Code::kInvalidArgument, "line {}: a '[' without its ']'", number);
      section = &file.sections_[Title(line.substr(1, end - 1))];
      group.clear();
      continue;
    }
    size_t equals = line.find('=');
    if (equals == std::string_view::npos && indented && !group.empty()) continue;
    if (equals == std::string_view::npos || section == nullptr)
      return Error(Code::kInvalidArgument, "line {}: expected [section] or name = value", number);
    std::string name = Lower(Trim(line.substr(0, equals)));
    std::string_view value = line.substr(equals + 1);
    if (name != "credential_process") value = WithoutComment(value);
    value = Trim(value);
    if (indented && !group.empty()) {
      (*section)[std::string(group).append(".").append(name)] = value;
      continue;
    }
    group = value.empty() ? name : "";
    (*section)[name] = value;
  }
  return file;
}

const ProfileFile::Section* ProfileFile::Find(std::string_view title) const {
  auto found = sections_.find(title);
  return found == sections_.end() ? nullptr : &found->second;
}

std::optional<std::string> Profile::Value(const std::string& name) const {
  for (const ProfileFile::Section* section : {&credentials, &config})
    if (auto found = section->find(name); found != section->end() && !found->second.empty())
      return found->second;
  return std::nullopt;
}

std::string Profile::Describe(const std::string& value) const {
  auto found = credentials.find(value);
  bool in_credentials = found != credentials.end() && !found->second.empty();
  return "profile '" + EscapeText(name) + "' (" +
         EscapeText(in_credentials ? credentials_path : config_path) + ")";
}

Result<Profile> LoadProfile(const std::string& name, const S3Surroundings& surroundings) {
  Profile profile;
  profile.name = name;
  profile.credentials_path =
      PathOf(surroundings, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
  profile.config_path = PathOf(surroundings, "AWS_CONFIG_FILE", ".aws/config");
  HR_ASSIGN_OR_RETURN(ProfileFile credentials,
                      LoadFile(profile.credentials_path, surroundings.files));
  HR_ASSIGN_OR_RETURN(ProfileFile config, LoadFile(profile.config_path, surroundings.files));
  if (const auto* section = credentials.Find(name)) {
    profile.credentials = *section;
    profile.found = true;
  }
  const auto* section = config.Find("profile " + name);
  if (!section && name == "default") section = config.Find(name);
  if (section) {
    profile.config = *section;
    profile.found = true;
  }
  if (auto services = profile.Value("services"))
    if (const auto* shared = config.Find("services " + *services)) profile.services = *shared;
  return profile;
}

}  // namespace headrace::object
