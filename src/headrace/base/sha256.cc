#include "headrace/base/sha256.h"

#include <fmt/core.h>
#include <openssl/evp.h>

namespace headrace {

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(new Context) {
  EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr);
}
Sha256::~Sha256() = default;

void Sha256::Update(Bytes data) { EVP_DigestUpdate(context_->evp, data.data(), data.size()); }

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_->evp, digest, &size);
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace headrace
