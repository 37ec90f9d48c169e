#include "headrace/object/peer/token.h"

#include "headrace/base/bytes.h"
#include "headrace/base/sha256.h"
#include "headrace/base/text.h"

namespace headrace::object {

Result<std::string> ReadTokenFile(FileSystem* fs, const std::string& path) {
  constexpr uint64_t kMostBytes = 4096;
  HR_ASSIGN_OR_RETURN(std::string token, fs->ReadWhole(path, kMostBytes));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  if (token.empty())
    return Error(Code::kInvalidArgument, "{}: there is no token in it", EscapeText(path));
  return token;
}

std::string TokenProof(std::string_view token, std::string_view nonce) {
  const std::string said = "headrace peer 1 " + std::string(nonce);
  const Sha256Digest digest = HmacSha256(AsBytes(token), AsBytes(said));
  return std::string(AsText(digest));
}

bool IsTokenProof(std::string_view proof, std::string_view token, std::string_view nonce) {
  const std::string wanted = TokenProof(token, nonce);
  unsigned difference = proof.size() == wanted.size() ? 0 : 1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const char one = i < proof.size() ? proof[i] : '\0';
    difference |= static_cast<unsigned char>(one ^ wanted[i]);
  }
  return difference == 0;
}

}  // namespace headrace::object
