// Whole messages of peers over a TCP stream. Internal to object/peer. As a TcpSocket: one sender
// and one receiver at a time.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/context.h"
#include "headrace/base/status.h"
#include "headrace/env/tcp_socket.h"
#include "headrace/object/peer/peer_protocol.h"

namespace headrace::object {

// How long a step may take in which so many bytes go over the stream or the disk, besides
// `patience`: whoever is slower than 1 MiB a second counts as gone.
std::chrono::nanoseconds PatienceFor(uint64_t bytes, std::chrono::nanoseconds patience);
// The same context, but for no longer than that from now on.
Context WithinPatience(const Context& ctx, std::chrono::nanoseconds patience);

Status SendPeerMessage(TcpSocket* socket, std::string_view head, Bytes data, const Context& ctx);

// The head of the next message, checked; its data follow, and must be received.
struct PeerHead {
  PeerFrame frame;
  std::string bytes;
};
// kDataLoss, kResourceExhausted (DecodePeerFrame); those of TcpSocket.
Result<PeerHead> ReceivePeerHead(TcpSocket* socket, uint32_t max_head_bytes, const Context& ctx);

// The data of a message. kDataLoss when they differ from their checksum, after which the stream can
// be used on; others: it cannot.
Status ReceivePeerData(TcpSocket* socket, const PeerFrame& frame, MutableBytes out,
                       const Context& ctx);
// The same into memory that grows with what has come.
Status ReceivePeerData(TcpSocket* socket, const PeerFrame& frame, std::vector<std::byte>* out,
                       const Context& ctx);
// Takes the data of a message and forgets them.
Status SkipPeerData(TcpSocket* socket, const PeerFrame& frame, const Context& ctx);

}  // namespace headrace::object
