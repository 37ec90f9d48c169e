// What a PeerStore and a PeerServer say to each other over a TCP stream, which carries one request
// after the other and the answer to each. Internal to object/peer. Pure functions, any thread.
//
// A message is a frame of 20 bytes, a head and data:
//
//   magic, bytes of the head, bytes of the data, CRC32C of the head, CRC32C of the data   each u32
//
// Numbers are little-endian, texts have their length (u16) before them. The server speaks first: a
// PeerAnswer whose `next` is a nonce. The client answers with kHello, whose key is the TokenProof
// for it, or empty. Whatever comes is taken for hostile: each size is checked before memory is
// taken for it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/status.h"
#include "headrace/object/object_store.h"

namespace headrace::object {

inline constexpr size_t kPeerFrameBytes = 20;
inline constexpr uint32_t kMaxPeerRequestBytes = 32 << 10;  // of a request's head
inline constexpr uint32_t kMaxPeerAnswerBytes = 4 << 20;    // of an answer's head, which may list
inline constexpr uint32_t kMaxPeerDataBytes = 64 << 20;
inline constexpr uint32_t kMaxPeerListed = 1000;  // in one answer

struct PeerFrame {
  uint32_t head_bytes = 0, data_bytes = 0;
  uint32_t head_crc32c = 0, data_crc32c = 0;
};
using PeerFrameBytes = std::array<std::byte, kPeerFrameBytes>;

// The frame of a message; both parts must be within the limits above.
PeerFrameBytes EncodePeerFrame(std::string_view head, Bytes data);
// kDataLoss: it is none, or one of a program that speaks otherwise. kResourceExhausted: more than
// `max_head_bytes`, or than kMaxPeerDataBytes.
Result<PeerFrame> DecodePeerFrame(const PeerFrameBytes& bytes, uint32_t max_head_bytes);

enum class PeerAsk : uint8_t {
  kHello = 1,
  kHead = 2,
  kGet = 3,
  kPut = 4,
  kDelete = 5,
  kList = 6,
  kStartUpload = 7,
  kPutPart = 8,
  kCompleteUpload = 9,
  kListUploads = 10,
  kAbortUpload = 11,
};

struct PeerRequest {
  PeerAsk ask = PeerAsk::kHello;
  bool if_absent = false;               // put
  std::string key;                      // of the object; hello: the proof; lists: the prefix
  std::string match;                    // get, put: if_match; of parts and ends of uploads: the id
  std::string delimiter, after, token;  // list
  uint64_t offset = 0;                  // get
  // get: bytes; list: at most so many; put_part: which one; complete_upload: how many
  uint64_t number = 0;
};

struct PeerAnswer {
  Status status;
  std::vector<ObjectInfo> objects;     // head, get: one; list
  std::vector<std::string> prefixes;   // list
  std::vector<PendingUpload> uploads;  // list_uploads
  std::string next;  // list: token of the next page; put, complete: the etag; start: the id
};

std::string EncodePeerRequest(const PeerRequest& request);
// kDataLoss: it is none, to its last byte.
Result<PeerRequest> DecodePeerRequest(Bytes head);
std::string EncodePeerAnswer(const PeerAnswer& answer);
// kDataLoss: it is none, to its last byte. A message that people are shown is one printable line.
Result<PeerAnswer> DecodePeerAnswer(Bytes head);

}  // namespace headrace::object
