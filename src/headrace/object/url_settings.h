// How to reach what URLs name: settings of the caller, and of the environment where the caller says
// nothing. Plain values. Functions are safe from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/object/object_store.h"
#include "headrace/object/s3/settings.h"

namespace headrace::object {

struct UrlSettings {
  S3Options s3;               // what is empty is looked up where AWS tools do: s3/settings.h
  uint32_t connections = 64;  // at once, to all hosts; half of them to one
  std::chrono::nanoseconds retry_budget = std::chrono::seconds(120);  // of one call
  uint64_t bandwidth_bytes = 0;  // a second, read and written, of this process; 0: no limit
  // What peers are shown that is known: what the file holds, else the token, a secret. Empty: none.
  std::string peer_token_file, peer_token;
  // Put here by LocateUrl: what one http or https host is sent, and no other. The last two are
  // secrets.
  std::string http_root;  // "https://host"
  std::string http_user, http_query;
  // Ends calls that take no context of their own; must live for ever. Null: they cannot be
  // cancelled.
  const std::atomic<bool>* cancelled = nullptr;
  // Puts another store around each one that is opened (a cache). Settings with different ones share
  // nothing. Null: none.
  using Wrap = std::function<Result<std::shared_ptr<ObjectStore>>(std::shared_ptr<ObjectStore>)>;
  std::shared_ptr<const Wrap> wrap;

  // Equal for settings that reach the same places in the same way. Holds secrets.
  std::string Fingerprint() const;
};

// Settings by name: endpoint, region, profile, access_key_id, secret_access_key, session_token,
// anonymous, path_style (true or false), dialect, ca_file, connections, retry_budget ("2m"),
// bandwidth ("200MiB", a second), peer_token_file. What is not named comes from
// HEADRACE_S3_ANONYMOUS, HEADRACE_S3_PATH_STYLE, HEADRACE_S3_DIALECT, HEADRACE_BANDWIDTH and
// HEADRACE_PEER_TOKEN_FILE, or is looked up later; peer_token comes from HEADRACE_PEER_TOKEN alone,
// where no file was named. kInvalidArgument: a name that is none (lists them), a value that cannot
// be read.
Result<UrlSettings> ReadUrlSettings(const std::map<std::string, std::string>& named);

}  // namespace headrace::object
