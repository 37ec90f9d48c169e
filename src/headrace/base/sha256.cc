#include "headrace/base/sha256.h"

#include <openssl/evp.h>

#include "headrace/base/text.h"

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

Sha256Digest Sha256::FinishBytes() {
  Sha256Digest digest{};
  EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string Sha256::Finish() { return HexText(FinishBytes()); }

Sha256Digest HmacSha256(Bytes key, Bytes data) {
  constexpr size_t kBlockBytes = 64;
  Sha256Digest short_key;
  if (key.size() > kBlockBytes) {
    Sha256 sha;
    sha.Update(key);
    short_key = sha.FinishBytes();
    key = short_key;
  }
  std::array<std::byte, kBlockBytes> inner, outer;
  inner.fill(std::byte{0x36});
  outer.fill(std::byte{0x5c});
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] ^= key[i];
    outer[i] ^= key[i];
  }
  Sha256 first;
  first.Update(inner);
  first.Update(data);
  Sha256 second;
  second.Update(outer);
  second.Update(first.FinishBytes());
  return second.FinishBytes();
}

std::array<std::byte, 16> Md5(Bytes data) {
  std::array<std::byte, 16> digest{};
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  if (EVP_DigestInit_ex(evp, EVP_md5(), nullptr) == 1) {
    EVP_DigestUpdate(evp, data.data(), data.size());
    EVP_DigestFinal_ex(evp, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  }
  EVP_MD_CTX_free(evp);
  return digest;
}

}  // namespace headrace
