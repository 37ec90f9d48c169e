// The floor under every reader of a bucket: libcurl's multi interface fetches all objects and
// throws the bytes away.
//
//   headrace_curl_get LIST CONNECTIONS RANGE_BYTES SECONDS
//
// LIST has one object a line: its size in bytes, a blank, its URL (signed beforehand). Each object
// is fetched in ranges of RANGE_BYTES, CONNECTIONS at once on connections that are kept. Whole
// passes until SECONDS are over. Prints one JSON object.
#include <curl/curl.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "clocks.h"

namespace headrace::floor {
namespace {

constexpr int kWaitMs = 1000;
constexpr long kReceiveBuffer = 512 * 1024;
// A request that gets no byte for so long has failed, as it has in Headrace.
constexpr long kStallSeconds = 60, kConnectSeconds = 30;

struct Range {
  const std::string* url = nullptr;
  uint64_t first = 0, last = 0;
};

struct Object {
  uint64_t size = 0;
  std::string url;
};

std::vector<Object> ReadList(const char* path) {
  std::vector<Object> objects;
  std::ifstream list(path);
  for (Object object; list >> object.size >> object.url;) objects.push_back(object);
  return objects;
}

std::vector<Range> CutIntoRanges(const std::vector<Object>& objects, uint64_t range_bytes) {
  std::vector<Range> ranges;
  for (const Object& object : objects) {
    for (uint64_t first = 0; first < object.size; first += range_bytes) {
      ranges.push_back({&object.url, first, std::min(first + range_bytes, object.size) - 1});
    }
  }
  return ranges;
}

size_t CountBytes(char* /*data*/, size_t size, size_t count, void* total) {
  *static_cast<uint64_t*>(total) += size * count;
  return size * count;
}

// Keeps as many requests in flight as there are handles.
class Fetcher {
 public:
  explicit Fetcher(int connections) : multi_(curl_multi_init()) {
    curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(connections));
    for (int i = 0; i < connections; ++i) {
      CURL* handle = curl_easy_init();
      curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &CountBytes);
      curl_easy_setopt(handle, CURLOPT_WRITEDATA, &bytes_);
      curl_easy_setopt(handle, CURLOPT_BUFFERSIZE, kReceiveBuffer);
      curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
      curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
      curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
      curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
      curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
      handles_.push_back(handle);
    }
  }
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;
  ~Fetcher() {
    for (CURL* handle : handles_) curl_easy_cleanup(handle);
    curl_multi_cleanup(multi_);
  }

  // False, after a line on standard error, when a request failed.
  bool FetchAll(const std::vector<Range>& ranges) {
    size_t next = 0;
    size_t in_flight = 0;
    for (CURL* handle : handles_) {
      if (next == ranges.size()) break;
      Start(handle, ranges[next++]);
      ++in_flight;
    }
    while (in_flight > 0) {
      int running = 0;
      curl_multi_perform(multi_, &running);
      int left = 0;
      while (CURLMsg* message = curl_multi_info_read(multi_, &left)) {
        CURL* handle = message->easy_handle;
        const CURLcode code = message->data.result;
        curl_multi_remove_handle(multi_, handle);
        --in_flight;
        if (code != CURLE_OK) return Fail(code);
        if (next < ranges.size()) {
          Start(handle, ranges[next++]);
          ++in_flight;
        }
      }
      if (in_flight > 0) curl_multi_poll(multi_, nullptr, 0, kWaitMs, nullptr);
    }
    return true;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  void Start(CURL* handle, const Range& range) {
    const std::string text = std::to_string(range.first) + "-" + std::to_string(range.last);
    curl_easy_setopt(handle, CURLOPT_URL, range.url->c_str());
    curl_easy_setopt(handle, CURLOPT_RANGE, text.c_str());
    curl_multi_add_handle(multi_, handle);
  }

  bool Fail(CURLcode code) {
    std::fprintf(stderr, "headrace_curl_get: a request failed: %s\n", curl_easy_strerror(code));
    return false;
  }

  CURLM* multi_;
  std::vector<CURL*> handles_;
  uint64_t bytes_ = 0;
};

int Measure(const std::vector<Range>& ranges, int connections, double seconds) {
  Fetcher fetcher(connections);
  if (!fetcher.FetchAll(ranges)) return 1;  // opens the connections
  const uint64_t warm = fetcher.bytes();
  const double wall_start = WallSeconds();
  const double cpu_start = CpuSeconds();
  int passes = 0;
  do {
    if (!fetcher.FetchAll(ranges)) return 1;
    ++passes;
  } while (WallSeconds() - wall_start < seconds);
  const double cpu = CpuSeconds() - cpu_start;
  const double wall = WallSeconds() - wall_start;
  const double gigabytes = static_cast<double>(fetcher.bytes() - warm) / 1e9;
  std::printf(
      "{\"result\": {\"passes\": %d, \"requests\": %zu, \"wall_s\": %.4f, \"cpu_s\": %.4f, "
      "\"gb_per_s\": %.4f, \"cpu_s_per_gb\": %.4f}}\n",
      passes, ranges.size() * static_cast<size_t>(passes), wall, cpu, gigabytes / wall,
      cpu / gigabytes);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: headrace_curl_get LIST CONNECTIONS RANGE_BYTES SECONDS\n");
    return 2;
  }
  const std::vector<Object> objects = ReadList(argv[1]);
  const auto range_bytes = static_cast<uint64_t>(std::max(1LL, std::atoll(argv[3])));
  const std::vector<Range> ranges = CutIntoRanges(objects, range_bytes);
  if (ranges.empty()) {
    std::fprintf(stderr, "headrace_curl_get: %s names no object\n", argv[1]);
    return 1;
  }
  curl_global_init(CURL_GLOBAL_DEFAULT);
  const int done = Measure(ranges, std::max(1, std::atoi(argv[2])), std::atof(argv[4]));
  curl_global_cleanup();
  return done;
}

}  // namespace
}  // namespace headrace::floor

int main(int argc, char** argv) { return headrace::floor::Main(argc, argv); }
