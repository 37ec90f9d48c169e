#include "headrace/net/curl_transfer.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "headrace/env/process.h"
#include "headrace/net/request_check.h"

namespace headrace::net {

namespace {

constexpr long kReceiveBufferBytes = 256 << 10;
constexpr long kSendBufferBytes = 256 << 10;
// Options that old headers do not name: CURLOPT_QUICK_EXIT (7.87), CURLOPT_PREREQFUNCTION and
// CURLOPT_PREREQDATA (7.80).
constexpr auto kQuickExit = static_cast<CURLoption>(CURLOPTTYPE_LONG + 322);
constexpr auto kPrereqFunction = static_cast<CURLoption>(CURLOPTTYPE_FUNCTIONPOINT + 312);
constexpr auto kPrereqData = static_cast<CURLoption>(CURLOPTTYPE_OBJECTPOINT + 313);

bool SameName(std::string_view a, std::string_view b) {
  auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

bool HasHeader(const HttpRequest& request, std::string_view name) {
  return std::any_of(request.headers.begin(), request.headers.end(),
                     [&](const HttpHeader& header) { return SameName(header.name, name); });
}

// libcurl takes "Name:" for "leave Name out"; an empty value is written "Name;".
bool IsBlank(std::string_view value) {
  return value.find_first_not_of(" \t") == std::string_view::npos;
}

int OnNewSocket(void*, curl_socket_t socket, curlsocktype) {
  (void)CloseOnExec(socket);
  return CURL_SOCKOPT_OK;
}

uint64_t NanosecondsBetween(CurlTransfer::Clock::time_point from,
                            CurlTransfer::Clock::time_point to) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count());
}

}  // namespace

// Sets options of a handle and keeps the first refusal.
class EasyOptions {
 public:
  EasyOptions(const CurlLibrary& curl, CURL* easy) : curl_(curl), easy_(easy) {}

  void Number(CURLoption option, long value) { Keep(curl_.easy_setopt(easy_, option, value)); }
  void Size(CURLoption option, uint64_t value) {
    Keep(curl_.easy_setopt(easy_, option, static_cast<curl_off_t>(value)));
  }
  template <typename T>
  void Pointer(CURLoption option, T* value) {
    Keep(curl_.easy_setopt(easy_, option, value));
  }
  // For options that old versions lack.
  void NumberIfKnown(CURLoption option, long value) {
    (void)curl_.easy_setopt(easy_, option, value);
  }
  template <typename T>
  void PointerIfKnown(CURLoption option, T* value) {
    (void)curl_.easy_setopt(easy_, option, value);
  }
  void Refuse(CURLcode code) { Keep(code); }
  CURLcode first_refusal() const { return refusal_; }

 private:
  void Keep(CURLcode code) {
    if (refusal_ == CURLE_OK) refusal_ = code;
  }
  const CurlLibrary& curl_;
  CURL* const easy_;
  CURLcode refusal_ = CURLE_OK;
};

CurlTransfer::CurlTransfer(HttpRequest request, const Context& ctx, HttpClient::Done done)
    : request_(std::move(request)),
      ctx_(ctx),
      done_(std::move(done)),
      answer_(request_.into, request_.max_body_bytes) {}

CurlTransfer::~CurlTransfer() {
  if (header_list_) curl_->slist_free_all(header_list_);
}

Status CurlTransfer::Check() {
  HR_ASSIGN_OR_RETURN(origin_, OriginOf(request_.url));
  return CheckRequest(request_);
}

Status CurlTransfer::Start(const CurlLibrary& curl, const HttpClientOptions& options, CURL* easy) {
  curl_ = &curl;
  easy_ = easy;
  started_ = last_progress_ = Clock::now();
  EasyOptions set(curl, easy);
  set.Pointer(CURLOPT_PRIVATE, this);
  set.Pointer(CURLOPT_ERRORBUFFER, curl_message_);
  set.Number(CURLOPT_NOSIGNAL, 1);
  set.Number(CURLOPT_NOPROGRESS, 1);
  set.NumberIfKnown(kQuickExit, 1);  // a name that is still being looked up holds up nothing else

  set.Pointer(CURLOPT_URL, request_.url.c_str());
  set.Number(CURLOPT_PATH_AS_IS, 1);
  set.Number(CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  set.Number(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  set.Number(CURLOPT_HTTP09_ALLOWED, 0);
  set.Number(CURLOPT_FOLLOWLOCATION, 0);
  set.Number(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1);
  set.Pointer(CURLOPT_USERAGENT, options.user_agent.c_str());

  set.Number(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_timeout.count()));
  set.Number(CURLOPT_TCP_NODELAY, 1);
  set.Number(CURLOPT_TCP_KEEPALIVE, 1);
  set.Pointer(CURLOPT_SOCKOPTFUNCTION, &OnNewSocket);
  set.Number(CURLOPT_BUFFERSIZE, kReceiveBufferBytes);
  set.Number(CURLOPT_SSL_VERIFYPEER, options.verify_tls ? 1 : 0);
  set.Number(CURLOPT_SSL_VERIFYHOST, options.verify_tls ? 2 : 0);
  if (!options.ca_file.empty()) set.Pointer(CURLOPT_CAINFO, options.ca_file.c_str());

  set.Pointer(CURLOPT_HEADERFUNCTION, &HeaderCallback);
  set.Pointer(CURLOPT_HEADERDATA, this);
  set.Pointer(CURLOPT_WRITEFUNCTION, &BodyCallback);
  set.Pointer(CURLOPT_WRITEDATA, this);
  SetMethod(&set);
  SetHeaders(curl, &set);
  if (set.first_refusal() != CURLE_OK)
    return Named(Error(Code::kInternal, "libcurl {} refused an option: {}", curl.version,
                       curl.easy_strerror(set.first_refusal())));
  return OkStatus();
}

// libcurl sends a request again by itself when a kept connection turns out to be dead. A PUT or
// POST must not be: OnSend stops it, and in versions before 7.80, which do not ask, a body that is
// read by a callback that cannot go back.
void CurlTransfer::SetMethod(EasyOptions* set) {
  const std::string& method = request_.method;
  if (method == "HEAD") {
    set->Number(CURLOPT_NOBODY, 1);
  } else if (method == "PUT" || method == "POST" || !request_.body.empty()) {
    set->Number(CURLOPT_UPLOAD, 1);
    set->Size(CURLOPT_INFILESIZE_LARGE, request_.body.size());
    set->Pointer(CURLOPT_READFUNCTION, &ReadCallback);
    set->Pointer(CURLOPT_READDATA, this);
    set->Number(CURLOPT_UPLOAD_BUFFERSIZE, kSendBufferBytes);
    if (method != "PUT") set->Pointer(CURLOPT_CUSTOMREQUEST, method.c_str());
    set->PointerIfKnown(kPrereqData, this);
    set->PointerIfKnown(kPrereqFunction, &SendCallback);
  } else {
    set->Number(CURLOPT_HTTPGET, 1);
    if (method != "GET") set->Pointer(CURLOPT_CUSTOMREQUEST, method.c_str());
  }
}

void CurlTransfer::SetHeaders(const CurlLibrary& curl, EasyOptions* set) {
  auto add = [&](const std::string& line) {
    curl_slist* longer = curl.slist_append(header_list_, line.c_str());
    if (longer)
      header_list_ = longer;
    else
      set->Refuse(CURLE_OUT_OF_MEMORY);
  };
  for (const HttpHeader& header : request_.headers)
    add(IsBlank(header.value) ? header.name + ";" : header.name + ": " + header.value);
  // What libcurl would add of its own.
  for (const char* name : {"Expect", "Accept", "Content-Type"})
    if (!HasHeader(request_, name)) add(std::string(name) + ":");
  set->Pointer(CURLOPT_HTTPHEADER, header_list_);
}

Status CurlTransfer::CheckContext(Clock::time_point now) const {
  bool cancelled = ctx_.cancelled && ctx_.cancelled->load(std::memory_order_relaxed);
  if (!cancelled && now <= ctx_.deadline) return OkStatus();
  Status status = ctx_.Check();
  return status.ok() ? status : Named(std::move(status));
}

Status CurlTransfer::CheckProgress(const HttpClientOptions& options, Clock::time_point asked) {
  curl_off_t sent = 0, received = 0, connected_us = 0;
  (void)curl_->easy_getinfo(easy_, CURLINFO_SIZE_UPLOAD_T, &sent);
  (void)curl_->easy_getinfo(easy_, CURLINFO_SIZE_DOWNLOAD_T, &received);
  uint64_t moved = static_cast<uint64_t>(sent) + static_cast<uint64_t>(received) + header_bytes_;
  if (moved != moved_bytes_) {
    moved_bytes_ = moved;
    last_progress_ = Clock::now();
  }
  HR_RETURN_IF_ERROR(CheckSpeed(options, asked));
  if (asked - last_progress_ < options.stall_timeout) return OkStatus();
  // Nothing moved. That is no stall while connecting, and only the time since counts.
  (void)curl_->easy_getinfo(easy_, CURLINFO_PRETRANSFER_TIME_T, &connected_us);
  Clock::time_point begin = started_ + (connected_us > 0 ? std::chrono::microseconds(connected_us)
                                                         : options.connect_timeout);
  if (asked - std::max(begin, last_progress_) < options.stall_timeout) return OkStatus();
  return Named(Error(Code::kUnavailable,
                     "no byte came or went for {} ms, {} bytes of the body were "
                     "received",
                     options.stall_timeout.count(), answer_.response().body_bytes));
}

// Counts from the first byte of the answer on, window by window.
Status CurlTransfer::CheckSpeed(const HttpClientOptions& options, Clock::time_point asked) {
  if (request_.into.empty() || first_byte_ == Clock::time_point{}) return OkStatus();
  if (window_begin_ == Clock::time_point{}) {
    window_begin_ = first_byte_;
    window_bytes_ = 0;
  }
  if (asked - window_begin_ < options.slow_window) return OkStatus();
  const uint64_t received = answer_.response().body_bytes;
  if (received - window_bytes_ < options.slow_bytes)
    return Named(Error(Code::kUnavailable,
                       "only {} bytes came in {} ms, {} bytes of the body were received",
                       received - window_bytes_, options.slow_window.count(), received));
  window_begin_ = Clock::now();
  window_bytes_ = received;
  return OkStatus();
}

void CurlTransfer::Finish(CURLcode code) {
  if (code != CURLE_OK) return Fail(Named(StatusOf(code)));
  if (!answer_.has_head())
    return Fail(Named(Error(Code::kUnavailable, "the connection ended without an answer")));
  HttpResponse response = answer_.Take();
  response.first_byte_ns = NanosecondsBetween(submitted_, first_byte_);
  response.total_ns = NanosecondsBetween(submitted_, Clock::now());
  std::exchange(done_, nullptr)(std::move(response));
}

void CurlTransfer::Fail(Status status) { std::exchange(done_, nullptr)(std::move(status)); }

Status CurlTransfer::StatusOf(CURLcode code) const {
  if (!failed_.ok()) return failed_;
  // The longer words can hold the URL of a proxy with its password.
  bool tell = curl_message_[0] != '\0' && std::strchr(curl_message_, '@') == nullptr;
  const char* words = tell ? curl_message_ : curl_->easy_strerror(code);
  switch (code) {
    case CURLE_PARTIAL_FILE:
      return Error(Code::kUnavailable, "the body ended after {} bytes, before its told end ({})",
                   answer_.response().body_bytes, words);
    case CURLE_URL_MALFORMAT:
      return Error(Code::kInvalidArgument, "{}", words);
    case CURLE_OUT_OF_MEMORY:
      return Error(Code::kResourceExhausted, "no memory for the transfer ({})", words);
    case CURLE_COULDNT_RESOLVE_PROXY:
      return Error(
          Code::kUnavailable,
          "the proxy that the environment names (http_proxy, https_proxy, all_proxy) cannot "
          "be used: its name is unknown, or it is not an address of a proxy");
    case CURLE_SEND_FAIL_REWIND:
    case CURLE_ABORTED_BY_CALLBACK:
      return Error(Code::kUnavailable,
                   "the connection ended before an answer came; the server may have done "
                   "what was asked, or not");
    case CURLE_FAILED_INIT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_UNKNOWN_OPTION:
      return Error(Code::kInternal, "{}", words);
    default:
      return Error(Code::kUnavailable, "{}", words);
  }
}

Status CurlTransfer::Named(Status status) const {
  return std::move(status).Prefix(request_.method + " " + UrlForMessages(request_.url));
}

size_t CurlTransfer::OnHeader(std::string_view line) {
  if (first_byte_ == Clock::time_point{}) first_byte_ = Clock::now();
  header_bytes_ += line.size();
  failed_ = answer_.AddHeaderLine(line);
  return failed_.ok() ? line.size() : 0;
}

size_t CurlTransfer::OnBody(Bytes bytes) {
  failed_ = answer_.AddBody(bytes);
  return failed_.ok() ? bytes.size() : 0;
}

size_t CurlTransfer::OnRead(MutableBytes out) {
  size_t bytes = std::min<size_t>(out.size(), request_.body.size() - body_sent_);
  if (bytes > 0) std::memcpy(out.data(), request_.body.data() + body_sent_, bytes);
  body_sent_ += bytes;
  return bytes;
}

// Called before the request goes out on a connection. Returns what tells libcurl to go on, or not.
int CurlTransfer::OnSend() {
  constexpr int kGoOn = 0, kStop = 1;
  return ++times_sent_ == 1 ? kGoOn : kStop;
}

// libcurl is C: what a callback gives back is a number of bytes, and a wrong one ends the transfer.
size_t CurlTransfer::HeaderCallback(char* data, size_t size, size_t count, void* self) {
  auto* transfer = static_cast<CurlTransfer*>(self);
  try {
    return transfer->OnHeader({data, size * count});
  } catch (const std::bad_alloc&) {
    transfer->failed_ = Status(Code::kResourceExhausted, "no memory for the answer's headers");
    return 0;
  }
}

size_t CurlTransfer::BodyCallback(char* data, size_t size, size_t count, void* self) {
  auto* transfer = static_cast<CurlTransfer*>(self);
  try {
    return transfer->OnBody(AsBytes({data, size * count}));
  } catch (const std::bad_alloc&) {
    transfer->failed_ = Status(Code::kResourceExhausted, "no memory for the answer's body");
    return 0;
  }
}

size_t CurlTransfer::ReadCallback(char* data, size_t size, size_t count, void* self) {
  return static_cast<CurlTransfer*>(self)->OnRead(
      {reinterpret_cast<std::byte*>(data), size * count});
}

int CurlTransfer::SendCallback(void* self, char*, char*, int, int) {
  return static_cast<CurlTransfer*>(self)->OnSend();
}

}  // namespace headrace::net
