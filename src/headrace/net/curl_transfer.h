// One request on its way through libcurl. Made by the thread that submits it; from then on used by
// the client's thread only.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/base/context.h"
#include "headrace/net/answer_reader.h"
#include "headrace/net/curl_library.h"
#include "headrace/net/http_client.h"

namespace headrace::net {

class CurlTransfer {
 public:
  using Clock = Context::Clock;

  CurlTransfer(HttpRequest request, const Context& ctx, HttpClient::Done done);
  ~CurlTransfer();
  CurlTransfer(const CurlTransfer&) = delete;
  CurlTransfer& operator=(const CurlTransfer&) = delete;

  // Looks at the request. kInvalidArgument as HttpClient::Submit has it.
  Status Check();
  // The server, as OriginOf() names it; after Check().
  const std::string& origin() const { return origin_; }
  // When the request was submitted, in order: later ones have larger numbers.
  uint64_t number = 0;
  // Where the owner keeps it among the running ones.
  size_t slot = 0;

  // Sets `easy` (new or reset) up for this request. kInternal when libcurl refuses an option.
  Status Start(const CurlLibrary& curl, const HttpClientOptions& options, CURL* easy);
  // The handle of Start(); null before.
  CURL* easy() const { return easy_; }

  // kCancelled or kDeadlineExceeded when the request should end now.
  Status CheckContext(Clock::time_point now) const;
  // kUnavailable when nothing moved for stall_timeout, or hardly anything in slow_window.
  // Connecting has its own limit. `asked` is when libcurl was last asked to move what there is: a
  // thread that was held up since then must not take its own pause for the server's.
  Status CheckProgress(const HttpClientOptions& options, Clock::time_point asked);

  // Each calls `done`, once. The transfer must be off its multi handle.
  void Finish(CURLcode code);
  void Fail(Status status);

 private:
  Status CheckSpeed(const HttpClientOptions& options, Clock::time_point asked);
  void SetMethod(class EasyOptions* set);
  void SetHeaders(const CurlLibrary& curl, class EasyOptions* set);
  Status StatusOf(CURLcode code) const;
  // Names the request in front of a message.
  Status Named(Status status) const;

  size_t OnHeader(std::string_view line);
  size_t OnBody(Bytes bytes);
  size_t OnRead(MutableBytes out);
  int OnSend();
  static size_t HeaderCallback(char* data, size_t size, size_t count, void* self);
  static size_t BodyCallback(char* data, size_t size, size_t count, void* self);
  static size_t ReadCallback(char* data, size_t size, size_t count, void* self);

  static int SendCallback(void* self, char* their_ip, char* our_ip, int their_port, int our_port);

  const HttpRequest request_;
  const Context ctx_;
  HttpClient::Done done_;
  const Clock::time_point submitted_ = Clock::now();
  std::string origin_;

  const CurlLibrary* curl_ = nullptr;
  CURL* easy_ = nullptr;
  curl_slist* header_list_ = nullptr;
  char curl_message_[CURL_ERROR_SIZE] = {};

  AnswerReader answer_;
  Status failed_;  // why a callback ended the transfer
  Clock::time_point first_byte_{};
  uint64_t body_sent_ = 0;
  int times_sent_ = 0;

  Clock::time_point started_{}, last_progress_{};
  uint64_t moved_bytes_ = 0;   // as of last_progress_
  uint64_t header_bytes_ = 0;  // received
  Clock::time_point window_begin_{};
  uint64_t window_bytes_ = 0;  // of the body, received before the window
};

}  // namespace headrace::net
