// Tokens that callers of a server must know. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "headrace/base/status.h"
#include "headrace/env/file.h"

namespace headrace::object {

inline constexpr size_t kMinTokenBytes = 16;

// What a file holds, without the ends of lines behind it. kInvalidArgument: nothing. Failures name
// the file, never what is in it.
Result<std::string> ReadTokenFile(FileSystem* fs, const std::string& path);

// Shows that the sender knows the token, without sending it: a MAC over what the other side said
// just now and never again.
std::string TokenProof(std::string_view token, std::string_view nonce);
// Takes the same time however much of the proof is right.
bool IsTokenProof(std::string_view proof, std::string_view token, std::string_view nonce);

}  // namespace headrace::object
