#include "headrace/env/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "headrace/env/file.h"
#include "headrace/env/local_address.h"
#include "headrace/env/posix_descriptor.h"
#include "headrace/env/socket_calls.h"

namespace headrace {
namespace {

constexpr std::string_view kWhat = "a local socket";

Result<Descriptor> MakeSocket() {
  Descriptor descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor.valid()) return PathError(errno, "make", "a local socket");
  return descriptor;
}

// The credentials of the process that connected or listens.
Result<ucred> PeerOf(int descriptor) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return PathError(errno, "ask for the peer of", "a local socket");
  return peer;
}

Status GoneError() {
  return Error(Code::kUnavailable, "the process on the other side of a local socket is gone");
}

class SeqpacketSocket final : public LocalSocket {
 public:
  SeqpacketSocket(Descriptor descriptor, int64_t peer)
      : descriptor_(std::move(descriptor)), peer_(peer) {}

  Status Send(Bytes message, const Context& ctx, int descriptor) override;
  Result<Message> Receive(const Context& ctx) override;
  int64_t peer_process() const override { return peer_; }

 private:
  const Descriptor descriptor_;
  const int64_t peer_;
};

// Room for the one descriptor that may come with a message.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

Status SeqpacketSocket::Send(Bytes message, const Context& ctx, int descriptor) {
  if (message.empty() || message.size() > kMaxMessageBytes)
    return Error(Code::kInvalidArgument, "a message has 1 to {} bytes, not {}", kMaxMessageBytes,
                 message.size());
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  Control control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    cmsghdr* first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(first), &descriptor, sizeof(int));
  }
  for (;;) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLOUT, kWhat, ctx));
    if (::sendmsg(descriptor_.get(), &header, MSG_NOSIGNAL) >= 0) return OkStatus();
    if (errno == EPIPE || errno == ECONNRESET) return GoneError();
    if (errno != EAGAIN && errno != EINTR) return PathError(errno, "send to", "a local socket");
  }
}

// Takes the descriptor of a message and closes any more that a stranger may have sent.
int TakeDescriptor(msghdr* header) {
  int taken = -1;
  for (cmsghdr* one = CMSG_FIRSTHDR(header); one != nullptr; one = CMSG_NXTHDR(header, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(one) + i * sizeof(int), sizeof(int));
      if (taken < 0) {
        taken = descriptor;
      } else {
        ::close(descriptor);
      }
    }
  }
  return taken;
}

Result<LocalSocket::Message> SeqpacketSocket::Receive(const Context& ctx) {
  Message message;
  message.content.resize(kMaxMessageBytes);
  for (;;) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLIN, kWhat, ctx));
    iovec part{message.content.data(), message.content.size()};
    Control control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    ssize_t got = ::recvmsg(descriptor_.get(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return GoneError();
    if (got < 0) return PathError(errno, "receive from", "a local socket");
    message.descriptor = TakeDescriptor(&header);
    message.content.resize(static_cast<size_t>(got));
    return message;
  }
}

// Which file a path names; zeros: none.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  bool operator==(const FileIdentity&) const = default;
};
FileIdentity IdentityOf(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) != 0) return {};
  return {info.st_dev, info.st_ino};
}

class SeqpacketListener final : public LocalListener {
 public:
  SeqpacketListener(Descriptor descriptor, std::string path, std::unique_ptr<FileLock> lock)
      : descriptor_(std::move(descriptor)),
        path_(std::move(path)),
        own_(IdentityOf(path_)),
        lock_(std::move(lock)) {}
  // Where somebody has removed the folder and made it anew the path may be another one's.
  ~SeqpacketListener() override {
    if (IdentityOf(path_) == own_) ::unlink(path_.c_str());
  }
  SeqpacketListener(const SeqpacketListener&) = delete;
  SeqpacketListener& operator=(const SeqpacketListener&) = delete;

  Result<std::unique_ptr<LocalSocket>> Accept(const Context& ctx) override;

 private:
  const Descriptor descriptor_;
  const std::string path_;
  const FileIdentity own_;
  const std::unique_ptr<FileLock> lock_;  // let go after the path is removed
};

Result<std::unique_ptr<LocalSocket>> SeqpacketListener::Accept(const Context& ctx) {
  for (;;) {
    HR_RETURN_IF_ERROR(WaitForSocket(descriptor_.get(), POLLIN, kWhat, ctx));
    Descriptor taken(::accept4(descriptor_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!taken.valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      return PathError(errno, "accept at", path_);
    }
    auto peer = PeerOf(taken.get());
    if (!peer.ok() || peer->uid != ::geteuid()) continue;
    return std::unique_ptr<LocalSocket>(
        std::make_unique<SeqpacketSocket>(std::move(taken), peer->pid));
  }
}

}  // namespace

Result<std::unique_ptr<LocalSocket>> LocalSocket::Connect(const std::string& path) {
  HR_ASSIGN_OR_RETURN(sockaddr_un address, LocalAddress(path));
  HR_ASSIGN_OR_RETURN(Descriptor descriptor, MakeSocket());
  if (::connect(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
      0) {
    if (errno == ENOENT || errno == ECONNREFUSED)
      return Error(Code::kNotFound, "no process listens at {}", path);
    return PathError(errno, "connect to", path);
  }
  HR_ASSIGN_OR_RETURN(ucred peer, PeerOf(descriptor.get()));
  if (peer.uid != ::geteuid())
    return Error(Code::kPermissionDenied, "the process at {} belongs to user {}", path, peer.uid);
  return std::unique_ptr<LocalSocket>(
      std::make_unique<SeqpacketSocket>(std::move(descriptor), peer.pid));
}

Result<std::unique_ptr<LocalListener>> LocalListener::Listen(const std::string& path) {
  HR_ASSIGN_OR_RETURN(sockaddr_un address, LocalAddress(path));
  HR_RETURN_IF_ERROR(CheckSocketFolder(std::string(DirectoryName(path))));
  // Who holds the lock listens; the path of one that died is taken over.
  auto lock = PosixFileSystem()->Lock(path + ".lock");
  if (!lock.ok()) {
    if (lock.status().code() == Code::kFailedPrecondition)
      return Error(Code::kAlreadyExists, "another process listens at {}", path);
    return lock.status();
  }
  HR_ASSIGN_OR_RETURN(Descriptor descriptor, MakeSocket());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return PathError(errno, "remove", path);
  if (::bind(descriptor.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(descriptor.get(), 64) != 0)
    return PathError(errno, "listen at", path);
  return std::unique_ptr<LocalListener>(
      std::make_unique<SeqpacketListener>(std::move(descriptor), path, std::move(*lock)));
}

}  // namespace headrace
