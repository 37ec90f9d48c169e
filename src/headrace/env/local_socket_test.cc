#include "headrace/env/local_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>

#include "headrace/env/file.h"
#include "headrace/env/process.h"
#include "headrace/env/testing/child_process.h"
#include "headrace/env/testing/temporary_directory.h"

namespace headrace {
namespace {

using std::chrono::milliseconds;

class LocalSocketTest : public ::testing::Test {
 protected:
  LocalSocketTest() {
    EXPECT_EQ(::chmod(dir_.path().c_str(), 0700), 0);
    path_ = JoinPath(dir_.path(), "socket");
  }

  static Context Soon(int ms) {
    Context ctx;
    ctx.deadline = Context::Clock::now() + milliseconds(ms);
    return ctx;
  }
  // Both ends of a connection.
  void Join() {
    auto listener = LocalListener::Listen(path_);
    ASSERT_TRUE(listener.ok()) << listener.status().ToString();
    listener_ = std::move(*listener);
    auto client = LocalSocket::Connect(path_);
    ASSERT_TRUE(client.ok()) << client.status().ToString();
    client_ = std::move(*client);
    auto server = listener_->Accept(Context());
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = std::move(*server);
  }

  TemporaryDirectory dir_;
  std::string path_;
  std::unique_ptr<LocalListener> listener_;
  std::unique_ptr<LocalSocket> client_, server_;
};

TEST_F(LocalSocketTest, CarriesWholeMessagesInOrder) {
  Join();
  EXPECT_EQ(server_->peer_process(), ::getpid());
  std::string large(LocalSocket::kMaxMessageBytes, 'x');
  ASSERT_TRUE(client_->Send(AsBytes("one"), Context()).ok());
  ASSERT_TRUE(client_->Send(AsBytes(large), Context()).ok());
  auto first = server_->Receive(Context());
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->content, "one");
  EXPECT_EQ(first->descriptor, -1);
  auto second = server_->Receive(Context());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->content, large);
  EXPECT_EQ(client_->Send({}, Context()).code(), Code::kInvalidArgument);
  large.push_back('x');
  EXPECT_EQ(client_->Send(AsBytes(large), Context()).code(), Code::kInvalidArgument);
}

TEST_F(LocalSocketTest, CarriesADescriptor) {
  Join();
  uint64_t open = *NumOpenFiles();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ASSERT_TRUE(client_->Send(AsBytes("take this"), Context(), ends[1]).ok());
  ::close(ends[1]);
  auto message = server_->Receive(Context());
  ASSERT_TRUE(message.ok());
  ASSERT_GE(message->descriptor, 0);
  EXPECT_NE(::fcntl(message->descriptor, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(message->descriptor, "z", 1), 1);
  char got = 0;
  ASSERT_EQ(::read(ends[0], &got, 1), 1);
  EXPECT_EQ(got, 'z');
  ::close(message->descriptor);
  ::close(ends[0]);
  EXPECT_EQ(*NumOpenFiles(), open);
}

TEST_F(LocalSocketTest, NoticesThatTheOtherSideIsGone) {
  Join();
  client_.reset();
  EXPECT_EQ(server_->Receive(Context()).status().code(), Code::kUnavailable);
  EXPECT_EQ(server_->Send(AsBytes("x"), Context()).code(), Code::kUnavailable);
}

TEST_F(LocalSocketTest, DeliversWhatWasSentBeforeTheEnd) {
  Join();
  ASSERT_TRUE(client_->Send(AsBytes("last words"), Context()).ok());
  client_.reset();
  auto message = server_->Receive(Context());
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->content, "last words");
  EXPECT_EQ(server_->Receive(Context()).status().code(), Code::kUnavailable);
}

TEST_F(LocalSocketTest, EndsAtTheDeadlineAndWhenCancelled) {
  Join();
  EXPECT_EQ(server_->Receive(Soon(1)).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(listener_->Accept(Soon(1)).status().code(), Code::kDeadlineExceeded);
  std::atomic<bool> cancelled{true};
  Context ctx;
  ctx.cancelled = &cancelled;
  EXPECT_EQ(server_->Receive(ctx).status().code(), Code::kCancelled);
  Status full;
  while (full.ok()) full = client_->Send(AsBytes(std::string(60'000, 'x')), Soon(50));
  EXPECT_EQ(full.code(), Code::kDeadlineExceeded);
}

TEST_F(LocalSocketTest, OneListensAtAPath) {
  auto first = LocalListener::Listen(path_);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(LocalListener::Listen(path_).status().code(), Code::kAlreadyExists);
  first->reset();
  EXPECT_EQ(LocalSocket::Connect(path_).status().code(), Code::kNotFound);
  EXPECT_TRUE(LocalListener::Listen(path_).ok());
}

TEST_F(LocalSocketTest, TakesOverFromAListenerThatDied) {
  EXPECT_EQ(ExitOfChild([&] {
              auto listener = LocalListener::Listen(path_);
              if (!listener.ok()) return 1;
              ::_exit(0);  // leaves the path behind
            }),
            0);
  EXPECT_TRUE(PosixFileSystem()->Exists(path_));
  EXPECT_EQ(LocalSocket::Connect(path_).status().code(), Code::kNotFound);
  Join();
}

TEST_F(LocalSocketTest, LeavesAPathThatIsAnotherListenersByNow) {
  auto first = LocalListener::Listen(path_);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_EQ(::unlink(path_.c_str()), 0);  // somebody tidies up while it listens
  ASSERT_EQ(::unlink((path_ + ".lock").c_str()), 0);
  auto second = LocalListener::Listen(path_);
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  first->reset();
  EXPECT_TRUE(LocalSocket::Connect(path_).ok());
  second->reset();
  EXPECT_EQ(LocalSocket::Connect(path_).status().code(), Code::kNotFound);
}

TEST_F(LocalSocketTest, RefusesPathsThatCannotWork) {
  EXPECT_EQ(LocalSocket::Connect("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LocalSocket::Connect(std::string(108, 'x')).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(LocalSocket::Connect(JoinPath(dir_.path(), "none")).status().code(), Code::kNotFound);
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0777), 0);
  EXPECT_EQ(LocalListener::Listen(path_).status().code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace headrace
