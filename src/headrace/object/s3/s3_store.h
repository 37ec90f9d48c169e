// Objects in a bucket that speaks S3: AWS, Ceph, SeaweedFS, MinIO... A driver of ObjectStore, which
// see. It signs every request itself (signer.h), over net::HttpClient, and does not retry: but a
// request that was refused for its signature's sake is signed anew once, with renewed credentials,
// the bucket's own region, or the server's time.
#pragma once

#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"
#include "headrace/object/object_store.h"
#include "headrace/object/s3/credentials.h"
#include "headrace/object/s3/settings.h"

namespace headrace::object {

// Opens a bucket with settings that were read by ReadS3Settings. Asks nothing of the server yet.
// `client` must outlive the store; where settings.ca_file names one, it has to be made with it.
// Destroying the store waits for its reads that still run. Not to be called on the client's thread.
//   kInvalidArgument  not a name of a bucket.
Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& bucket,
                                                 const S3Settings& settings,
                                                 net::HttpClient* client);

// The same with settings from everywhere: `options` first, then the environment and the profiles.
Result<std::unique_ptr<ObjectStore>> OpenS3Store(const std::string& bucket,
                                                 const S3Options& options, net::HttpClient* client);

}  // namespace headrace::object
