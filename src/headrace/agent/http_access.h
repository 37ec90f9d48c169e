// Who may ask an HTTP server of this program, and how it answers in JSON. Pure functions, safe from
// any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/json.h"
#include "headrace/base/status.h"
#include "headrace/env/exchange.h"
#include "headrace/net/request_reader.h"

namespace headrace::agent {

// Where an HTTP server listens.
struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 0;  // 0: a free one
  std::string token;  // needed for an address that others reach: at least 16 characters
  ExchangeServer::Options limits = {};
};
// kInvalidArgument: no token for an address that others reach, or too short a one.
Status CheckHttpOptions(const HttpOptions& options);

// The answer to a request that may not be answered, or nothing. `token` empty: none is asked for;
// `local`: over the socket, whoever reaches it may ask. Over HTTP without a token the Host must be
// an address of this machine; pages of other places never may.
std::optional<std::string> RefuseStranger(const net::ReceivedRequest& request,
                                          std::string_view token, bool local);

// 200 with this value.
std::string Json200(const Json& json);
// {"error": message}.
std::string Failure(int status, std::string_view message,
                    const std::vector<net::HttpHeader>& more = {});

}  // namespace headrace::agent
