// Any bytes as a frame, a request and an answer of peers: sizes are bounded, a request that is
// taken is written in the same bytes again, and an answer that is taken is one when it is written
// anew.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "headrace/object/peer/peer_protocol.h"

namespace {

namespace object = headrace::object;

void Require(bool holds) {
  if (!holds) std::abort();
}

void TryFrame(headrace::Bytes bytes) {
  object::PeerFrameBytes frame_bytes{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), frame_bytes.size()), frame_bytes.begin());
  auto frame = object::DecodePeerFrame(frame_bytes, object::kMaxPeerRequestBytes);
  if (!frame.ok()) return;
  Require(frame->head_bytes <= object::kMaxPeerRequestBytes &&
          frame->data_bytes <= object::kMaxPeerDataBytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const headrace::Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  TryFrame(bytes);
  if (auto request = object::DecodePeerRequest(bytes); request.ok())
    Require(object::EncodePeerRequest(*request) == headrace::AsText(bytes));
  if (auto answer = object::DecodePeerAnswer(bytes); answer.ok()) {
    const std::string again = object::EncodePeerAnswer(*answer);
    auto twice = object::DecodePeerAnswer(headrace::AsBytes(again));
    Require(twice.ok() && twice->objects.size() == answer->objects.size());
    Require(twice->status.code() == answer->status.code() && twice->next == answer->next);
  }
  return 0;
}
