#include "headrace/dataset/content_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <array>

#include "headrace/base/text.h"

namespace headrace::dataset {
namespace {

class OpenSslHash : public ContentHash {
 public:
  explicit OpenSslHash(const EVP_MD* algorithm) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    ok_ = context_ && EVP_DigestInit_ex(context_.get(), algorithm, nullptr) == 1;
  }
  bool ok() const { return ok_; }
  void Update(Bytes data) override {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), data.data(), data.size()) == 1;
  }
  std::string Finish() override {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned bytes = 0;
    std::string hex;
    if (!ok_ || EVP_DigestFinal_ex(context_.get(), digest.data(), &bytes) != 1) return hex;
    for (unsigned i = 0; i < bytes; ++i) hex += fmt::format("{:02x}", digest[i]);
    return hex;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
  bool ok_ = false;
};

class Xxh32 : public ContentHash {
 public:
  Xxh32() : state_(XXH32_createState(), &XXH32_freeState) { XXH32_reset(state_.get(), 0); }
  void Update(Bytes data) override { XXH32_update(state_.get(), data.data(), data.size()); }
  std::string Finish() override { return fmt::format("{:08x}", XXH32_digest(state_.get())); }

 private:
  std::unique_ptr<XXH32_state_t, XXH_errorcode (*)(XXH32_state_t*)> state_;
};

class Xxh64 : public ContentHash {
 public:
  Xxh64() : state_(XXH64_createState(), &XXH64_freeState) { XXH64_reset(state_.get(), 0); }
  void Update(Bytes data) override { XXH64_update(state_.get(), data.data(), data.size()); }
  std::string Finish() override { return fmt::format("{:016x}", XXH64_digest(state_.get())); }

 private:
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t*)> state_;
};

class Xxh3 : public ContentHash {
 public:
  explicit Xxh3(bool is_128) : state_(XXH3_createState(), &XXH3_freeState), is_128_(is_128) {
    if (is_128)
      XXH3_128bits_reset(state_.get());
    else
      XXH3_64bits_reset(state_.get());
  }
  void Update(Bytes data) override {
    if (is_128_)
      XXH3_128bits_update(state_.get(), data.data(), data.size());
    else
      XXH3_64bits_update(state_.get(), data.data(), data.size());
  }
  std::string Finish() override {
    if (!is_128_) return fmt::format("{:016x}", XXH3_64bits_digest(state_.get()));
    XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state_;
  bool is_128_;
};

// The name that OpenSSL has for one of hashlib's.
const char* OpenSslName(std::string_view algorithm) {
  struct Row {
    std::string_view name;
    const char* openssl;
  };
  static constexpr Row kRows[] = {
      {"md5", "MD5"},           {"sha1", "SHA1"},          {"sha224", "SHA224"},
      {"sha256", "SHA256"},     {"sha384", "SHA384"},      {"sha512", "SHA512"},
      {"sha3_224", "SHA3-224"}, {"sha3_256", "SHA3-256"},  {"sha3_384", "SHA3-384"},
      {"sha3_512", "SHA3-512"}, {"blake2b", "BLAKE2b512"}, {"blake2s", "BLAKE2s256"}};
  for (const Row& row : kRows)
    if (row.name == algorithm) return row.openssl;
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<ContentHash>> ContentHash::Create(std::string_view algorithm) {
  if (algorithm == "xxh32") return std::make_unique<Xxh32>();
  if (algorithm == "xxh64") return std::make_unique<Xxh64>();
  if (algorithm == "xxh3_64") return std::make_unique<Xxh3>(false);
  if (algorithm == "xxh128" || algorithm == "xxh3_128") return std::make_unique<Xxh3>(true);
  const char* name = OpenSslName(algorithm);
  const EVP_MD* digest = name ? EVP_get_digestbyname(name) : nullptr;
  if (digest) {
    auto hash = std::make_unique<OpenSslHash>(digest);
    if (hash->ok()) return hash;
  }
  return Error(Code::kUnimplemented, "the hash '{}' is not known here", EscapeText(algorithm));
}

}  // namespace headrace::dataset
