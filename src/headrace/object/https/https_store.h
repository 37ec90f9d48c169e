// Files of a web server, read by range requests: a driver of ObjectStore, which see. It reads only
// (Head, Get) and cannot list, so a dataset there needs a manifest or names given. No retries.
#pragma once

#include <memory>
#include <string>

#include "headrace/base/status.h"
#include "headrace/net/http_client.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

// Opens what lies below `url`, "https://host/folder" or "http://...": a key is the rest of the
// path. A query ("?token=...") is sent with every request, a user and password in front of the host
// as basic authorization; neither is ever shown. Asks nothing of the server yet. `client` must
// outlive the store. Destroying the store waits for its reads that still run.
//   kInvalidArgument  not such a URL.
// Of Get: kUnimplemented when the server answers a request for a part with the whole file.
Result<std::unique_ptr<ObjectStore>> OpenHttpsStore(const std::string& url,
                                                    net::HttpClient* client);

}  // namespace headrace::object
