#include "headrace/net/testing/server_tls.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace headrace::net {

namespace {

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* p) const {
    free(p);
  }
};
using SslPtr = std::unique_ptr<SSL, Free<SSL_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Free<X509_free>>;

void Expect(bool done, const char* what) {
  if (done) return;
  std::fprintf(stderr, "the tests' TLS server cannot %s\n", what);
  ERR_print_errors_fp(stderr);
  std::abort();
}

class Plain final : public ServerStream {
 public:
  explicit Plain(int fd) : fd_(fd) {}
  long Receive(char* out, size_t size) override {
    ssize_t bytes = 0;
    do bytes = ::recv(fd_, out, size, 0);
    while (bytes < 0 && errno == EINTR);
    return bytes;
  }
  long Send(std::string_view bytes) override {
    ssize_t sent = 0;
    do sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent;
  }

 private:
  const int fd_;
};

class Encrypted final : public ServerStream {
 public:
  explicit Encrypted(SslPtr ssl) : ssl_(std::move(ssl)) {}
  long Receive(char* out, size_t size) override {
    ERR_clear_error();
    return SSL_read(ssl_.get(), out, static_cast<int>(size));
  }
  long Send(std::string_view bytes) override {
    ERR_clear_error();
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size()));
  }

 private:
  SslPtr ssl_;
};

void AddExtension(X509* certificate, int id, const char* value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value);
  Expect(extension && X509_add_ext(certificate, extension, -1) == 1, "extend a certificate");
  X509_EXTENSION_free(extension);
}

CertificatePtr MakeCertificate(EVP_PKEY* key) {
  CertificatePtr certificate(X509_new());
  Expect(certificate != nullptr, "make a certificate");
  X509* one = certificate.get();
  X509_set_version(one, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(one), 1);
  X509_gmtime_adj(X509_getm_notBefore(one), -24L * 60 * 60);
  X509_gmtime_adj(X509_getm_notAfter(one), 24L * 60 * 60);
  X509_set_pubkey(one, key);
  X509_NAME* name = X509_get_subject_name(one);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("headrace test"), -1, -1, 0);
  X509_set_issuer_name(one, name);
  AddExtension(one, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(one, NID_subject_alt_name, "IP:127.0.0.1");
  Expect(X509_sign(one, key, EVP_sha256()) > 0, "sign a certificate");
  return certificate;
}

std::string PemOf(X509* certificate) {
  BIO* memory = BIO_new(BIO_s_mem());
  Expect(memory && PEM_write_bio_X509(memory, certificate) == 1, "write a certificate");
  char* data = nullptr;
  long bytes = BIO_get_mem_data(memory, &data);
  std::string pem(data, static_cast<size_t>(bytes));
  BIO_free(memory);
  return pem;
}

}  // namespace

std::unique_ptr<ServerStream> PlainStream(int fd) { return std::make_unique<Plain>(fd); }

struct ServerTls::Rep {
  ContextPtr context;
};

ServerTls::ServerTls() : rep_(std::make_unique<Rep>()) {
  KeyPtr key(EVP_EC_gen("P-256"));
  Expect(key != nullptr, "make a key");
  CertificatePtr certificate = MakeCertificate(key.get());
  rep_->context.reset(SSL_CTX_new(TLS_server_method()));
  Expect(rep_->context && SSL_CTX_use_certificate(rep_->context.get(), certificate.get()) == 1 &&
             SSL_CTX_use_PrivateKey(rep_->context.get(), key.get()) == 1,
         "start");
  pem_ = PemOf(certificate.get());
}

ServerTls::~ServerTls() = default;

std::unique_ptr<ServerStream> ServerTls::Accept(int fd) {
  SslPtr ssl(SSL_new(rep_->context.get()));
  ERR_clear_error();
  if (!ssl || SSL_set_fd(ssl.get(), fd) != 1 || SSL_accept(ssl.get()) != 1) return nullptr;
  return std::make_unique<Encrypted>(std::move(ssl));
}

}  // namespace headrace::net
