// The HTTP client of tests that are not about limits of time. For tests only.
#pragma once

#include <memory>

#include "headrace/net/http_client.h"
#include "headrace/net/testing/patient_options.h"

namespace headrace::object {

// One for the whole program, which is never destroyed. Thread-safe.
inline net::HttpClient* PatientClient() {
  static const auto* client =
      new std::unique_ptr<net::HttpClient>(*net::HttpClient::Create(net::Patient()));
  return client->get();
}

}  // namespace headrace::object
