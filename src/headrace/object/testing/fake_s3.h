// A bucket in memory behind a real HTTP server on 127.0.0.1, for tests of the driver s3 and of what
// is above it. It takes any key, checks every signature against the bytes that came, and does what
// S3 does to conditions, ranges, listings and uploads in parts. Faults come from its FaultServer.
// For tests only. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/mutex.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/object/s3/credentials.h"
#include "headrace/object/s3/settings.h"

namespace headrace::object {

class FakeS3 {
 public:
  // Serves the bucket "bucket" to whoever signs with Credentials().
  FakeS3();

  net::FaultServer& server() { return server_; }
  static S3Credentials Credentials() { return {"ID", "KEY+/secret", "", 0}; }
  // Settings that reach it, whatever the environment says.
  S3Options Options();

  // Takes only these from now on; others get 400 ExpiredToken.
  void SetCredentials(S3Credentials credentials);
  // Answers requests that were signed for another region with 400 AuthorizationHeaderMalformed.
  void SetRegion(std::string region);
  // Cuts pages of listings to this many names, whatever is asked for.
  void SetPageLimit(uint32_t names);

  // An answer as S3 gives it for a failure.
  static net::ServerAnswer Failure(int status, std::string_view code, std::string_view more = "");

 private:
  struct Object {
    std::string content, etag, mark = {};
  };
  struct PendingParts {
    std::string key;
    std::map<uint32_t, Object> parts;
  };
  struct Wanted;  // a request, taken apart
  using Answer = net::ServerAnswer;

  Answer Serve(const net::ServerRequest& request);
  Answer CheckSignature(const net::ServerRequest& request, const Wanted& wanted);
  Answer ServeBucket(const Wanted& wanted) HR_REQUIRES(mu_);
  Answer ServeObject(const net::ServerRequest& request, const Wanted& wanted) HR_REQUIRES(mu_);
  Answer Put(const net::ServerRequest& request, const Wanted& wanted) HR_REQUIRES(mu_);
  Answer List(const Wanted& wanted) HR_REQUIRES(mu_);
  Answer ListUploads(const Wanted& wanted) HR_REQUIRES(mu_);
  Answer PutPart(const net::ServerRequest& request, const Wanted& wanted) HR_REQUIRES(mu_);
  Answer Complete(const net::ServerRequest& request, const Wanted& wanted) HR_REQUIRES(mu_);

  Mutex mu_;
  S3Credentials credentials_ HR_GUARDED_BY(mu_) = Credentials();
  std::string region_ HR_GUARDED_BY(mu_);  // empty: any
  uint32_t page_limit_ HR_GUARDED_BY(mu_) = 1000;
  std::map<std::string, Object> objects_ HR_GUARDED_BY(mu_);
  std::map<std::string, PendingParts> uploads_ HR_GUARDED_BY(mu_);
  uint64_t num_made_ HR_GUARDED_BY(mu_) = 0;
  net::FaultServer server_;  // last: its threads use all of the above
};

}  // namespace headrace::object
