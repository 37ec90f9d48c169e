#include "headrace/object/peer/peer_stream.h"

#include <algorithm>

#include "headrace/base/crc32c.h"

namespace headrace::object {
namespace {

constexpr uint64_t kSlowest = 1 << 20;  // bytes a second
constexpr size_t kGrowBytes = 1 << 20;  // of memory before the bytes for it have come
constexpr size_t kSkippedBytes = 64 << 10;

Status CheckData(const PeerFrame& frame, Bytes data) {
  if (Crc32c(data) == frame.data_crc32c) return OkStatus();
  return Error(Code::kDataLoss, "{} bytes came that differ from their checksum", data.size());
}

}  // namespace

std::chrono::nanoseconds PatienceFor(uint64_t bytes, std::chrono::nanoseconds patience) {
  return patience + std::chrono::seconds(bytes / kSlowest);
}

Context WithinPatience(const Context& ctx, std::chrono::nanoseconds patience) {
  Context within = ctx;
  within.deadline = std::min(ctx.deadline, Context::Clock::now() + patience);
  return within;
}

Status SendPeerMessage(TcpSocket* socket, std::string_view head, Bytes data, const Context& ctx) {
  const PeerFrameBytes frame = EncodePeerFrame(head, data);
  std::string first(AsText(frame));
  first += head;
  HR_RETURN_IF_ERROR(socket->Send(AsBytes(first), ctx));
  return data.empty() ? OkStatus() : socket->Send(data, ctx);
}

Result<PeerHead> ReceivePeerHead(TcpSocket* socket, uint32_t max_head_bytes, const Context& ctx) {
  PeerFrameBytes bytes;
  HR_RETURN_IF_ERROR(socket->Receive(bytes, ctx));
  PeerHead head;
  HR_ASSIGN_OR_RETURN(head.frame, DecodePeerFrame(bytes, max_head_bytes));
  head.bytes.resize(head.frame.head_bytes);
  HR_RETURN_IF_ERROR(socket->Receive(std::as_writable_bytes(std::span(head.bytes)), ctx));
  if (Crc32c(AsBytes(head.bytes)) != head.frame.head_crc32c)
    return Status(Code::kDataLoss, "a message came that differs from its checksum");
  return head;
}

Status ReceivePeerData(TcpSocket* socket, const PeerFrame& frame, MutableBytes out,
                       const Context& ctx) {
  HR_RETURN_IF_ERROR(socket->Receive(out, ctx));
  return CheckData(frame, out);
}

Status ReceivePeerData(TcpSocket* socket, const PeerFrame& frame, std::vector<std::byte>* out,
                       const Context& ctx) {
  out->clear();
  while (out->size() < frame.data_bytes) {
    const size_t before = out->size();
    out->resize(std::min<size_t>(frame.data_bytes, before + std::max(kGrowBytes, before)));
    HR_RETURN_IF_ERROR(socket->Receive(MutableBytes(*out).subspan(before), ctx));
  }
  return CheckData(frame, *out);
}

Status SkipPeerData(TcpSocket* socket, const PeerFrame& frame, const Context& ctx) {
  std::vector<std::byte> scratch(std::min<size_t>(frame.data_bytes, kSkippedBytes));
  for (uint64_t left = frame.data_bytes; left > 0;) {
    const MutableBytes part = MutableBytes(scratch).first(std::min<size_t>(left, scratch.size()));
    HR_RETURN_IF_ERROR(socket->Receive(part, ctx));
    left -= part.size();
  }
  return OkStatus();
}

}  // namespace headrace::object
