// The client on encrypted connections.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "headrace/env/file.h"
#include "headrace/env/testing/temporary_directory.h"
#include "headrace/net/http_client.h"
#include "headrace/net/testing/fault_server.h"
#include "headrace/net/testing/http_collector.h"
#include "headrace/net/testing/patient_options.h"

namespace headrace::net {
namespace {

ServerAnswer LargeAnswer(const ServerRequest&) {
  ServerAnswer answer;
  answer.body = std::string(1 << 20, 'x');
  return answer;
}

class HttpClientTls : public ::testing::Test {
 protected:
  HttpClientTls() : server_(LargeAnswer, Transport::kTls), ca_file_(directory_ / "ca.pem") {
    EXPECT_TRUE(
        PosixFileSystem()->WriteAtomically(ca_file_, AsBytes(server_.certificate_pem())).ok());
  }
  Result<HttpResponse> GetWith(const HttpClientOptions& options) {
    client_ = *HttpClient::Create(Patient(options));
    return client_->Fetch(Request(), {});
  }
  HttpRequest Request() {
    HttpRequest request;
    request.url = server_.url() + "/file";
    return request;
  }

  TemporaryDirectory directory_;
  FaultServer server_;
  const std::string ca_file_;
  std::unique_ptr<HttpClient> client_;
};

TEST_F(HttpClientTls, TrustsTheGivenCertificate) {
  auto got = GetWith({.ca_file = ca_file_});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->body_bytes, 1u << 20);
}

TEST_F(HttpClientTls, AnUnknownCertificateIsUnavailable) {
  auto got = GetWith({});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), Code::kUnavailable);
  EXPECT_EQ(server_.num_requests(), 0u);
}

TEST_F(HttpClientTls, CanBeToldNotToLook) {
  auto got = GetWith({.verify_tls = false});
  EXPECT_TRUE(got.ok()) << got.status().ToString();
}

TEST_F(HttpClientTls, ACertificateOfAnotherHostIsUnavailable) {
  client_ = *HttpClient::Create(Patient({.ca_file = ca_file_}));
  HttpRequest request = Request();
  request.url = "https://localhost:" + std::to_string(server_.port()) + "/file";
  auto got = client_->Fetch(request, {});
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.status().code(), Code::kUnavailable);
  EXPECT_EQ(server_.num_requests(), 0u);
}

TEST_F(HttpClientTls, AMissingFileOfCertificatesIsNamed) {
  auto got = GetWith({.ca_file = directory_ / "missing.pem"});
  ASSERT_FALSE(got.ok());
  EXPECT_THAT(got.status().ToString(), ::testing::HasSubstr("missing.pem"));
}

TEST_F(HttpClientTls, KeepsConnections) {
  ASSERT_TRUE(GetWith({.max_connections = 4, .ca_file = ca_file_}).ok());
  HttpCollector answers;
  for (int i = 0; i < 40; ++i) client_->Submit(Request(), {}, answers.Next());
  for (const auto& answer : answers.Wait(40))
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_LE(server_.num_connections(), 4u);
}

TEST_F(HttpClientTls, SendsABody) {
  client_ = *HttpClient::Create(Patient({.ca_file = ca_file_}));
  const std::string body(3 << 20, 'b');
  HttpRequest request = Request();
  request.method = "PUT";
  request.body = AsBytes(body);
  auto got = client_->Fetch(request, {});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(server_.requests().back().body == body);
}

TEST_F(HttpClientTls, ABodyThatIsCutIsNeverAnAnswer) {
  client_ = *HttpClient::Create(Patient({.ca_file = ca_file_}));
  for (const Fault& fault : {CutFault(1000, Cut::kClose), CutFault(1000, Cut::kReset)}) {
    server_.Inject(fault);
    auto got = client_->Fetch(Request(), {});
    ASSERT_FALSE(got.ok());
    EXPECT_THAT(got.status().code(), Code::kUnavailable);
  }
}

}  // namespace
}  // namespace headrace::net
