// An upload in parts to a bucket: Upload, which see. Internal to the driver s3. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "headrace/base/mutex.h"
#include "headrace/object/object_store.h"
#include "headrace/object/s3/s3_session.h"

namespace headrace::object {

// AWS's limits; others take as many and smaller ones.
inline constexpr uint32_t kMaxS3Parts = 10000;
inline constexpr uint64_t kMaxS3PartBytes = uint64_t{5} << 30;

class S3Upload final : public Upload {
 public:
  S3Upload(std::shared_ptr<S3Session> session, std::string key, std::string id);
  ~S3Upload() override;

  Status PutPart(uint32_t number, Bytes data, const Context& ctx) override;
  Result<std::string> Complete(uint32_t num_parts, const Context& ctx) override;
  Status Abort(const Context& ctx) override;

 private:
  struct Part {
    std::string etag, checksum;
  };
  Status CheckOpen();
  Status CheckStillThere(const Context& ctx);
  std::string AskEtag(uint32_t num_parts, const Context& ctx);
  // The list of parts that completes the upload.
  Result<std::string> PartList(uint32_t num_parts);

  const std::shared_ptr<S3Session> session_;
  const std::string key_, id_;
  Mutex mu_;  // none is taken while it is held; no I/O under it
  std::map<uint32_t, Part> parts_ HR_GUARDED_BY(mu_);
  bool ended_ HR_GUARDED_BY(mu_) = false;    // completed or given up
  bool unclear_ HR_GUARDED_BY(mu_) = false;  // a completion failed, and may have been done
};

// Gives up an upload. OK where there is none.
Status AbortS3Upload(S3Session* session, const std::string& key, const std::string& id,
                     const Context& ctx);
// Adds what guards a body on its way, as the dialect says, to the headers of a request. Returns the
// CRC32C as it is sent, or "".
std::string AddBodyChecksum(S3Checksum checksum, Bytes body, std::vector<net::HttpHeader>* headers);

}  // namespace headrace::object
