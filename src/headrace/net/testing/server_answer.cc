// What the scripted server answers, apart from how it is sent.
#include <algorithm>
#include <charconv>
#include <utility>

#include "headrace/net/testing/fault_server.h"

namespace headrace::net {

namespace {

std::string_view FindHeader(const std::vector<HttpHeader>& headers, std::string_view name) {
  auto found = std::find_if(headers.begin(), headers.end(),
                            [&](const HttpHeader& header) { return header.name == name; });
  return found == headers.end() ? std::string_view() : std::string_view(found->value);
}

std::string DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Range {
  uint64_t begin = 0, end = 0;  // [begin, end)
};

// The range that "bytes=a-b" asks for; nothing when it asks for none that this server knows. One
// that begins behind the end is returned as it is.
std::optional<Range> ReadRange(std::string_view text, uint64_t size) {
  if (!text.starts_with("bytes=")) return std::nullopt;
  text.remove_prefix(6);
  size_t dash = text.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  auto first = Number(text.substr(0, dash)), last = Number(text.substr(dash + 1));
  if (!first && !last) return std::nullopt;
  if (!first) return Range{size - std::min(*last, size), size};
  return Range{*first, last ? std::min(*last + 1, size) : size};
}

}  // namespace

std::string_view ServerRequest::Header(std::string_view name) const {
  return FindHeader(headers, name);
}

std::string_view ServerRequest::path() const {
  return std::string_view(target).substr(0, target.find('?'));
}

std::string ServerRequest::Query(std::string_view name) const {
  size_t question = target.find('?');
  std::string_view rest =
      question == std::string::npos ? "" : std::string_view(target).substr(question + 1);
  while (!rest.empty()) {
    std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    size_t equals = pair.find('=');
    if (DecodePercent(pair.substr(0, equals)) == name)
      return equals == std::string_view::npos ? "" : DecodePercent(pair.substr(equals + 1));
  }
  return "";
}

Fault StatusFault(int status, std::string retry_after) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer = ServerAnswer{};
    answer.status = status;
    if (!retry_after.empty()) answer.headers.push_back({"Retry-After", retry_after});
  };
}

Fault CutFault(uint64_t at, Cut cut) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer.cut_at = at;
    answer.cut = cut;
  };
}

Fault ShortBodyFault(uint64_t bytes) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer.content_length = answer.body.size();
    answer.body.resize(answer.body.size() - std::min<uint64_t>(bytes, answer.body.size()));
  };
}

Fault WrongRangeFault(uint64_t by) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    for (HttpHeader& header : answer.headers) {
      size_t dash = header.value.find('-'), slash = header.value.find('/');
      if (header.name != "Content-Range" || dash == std::string::npos) continue;
      auto first = Number(std::string_view(header.value).substr(6, dash - 6));
      auto last = Number(std::string_view(header.value).substr(dash + 1, slash - dash - 1));
      if (first && last)
        header.value = "bytes " + std::to_string(*first + by) + "-" + std::to_string(*last + by) +
                       header.value.substr(slash);
    }
  };
}

Fault SlowFirstByteFault(std::chrono::milliseconds delay) {
  return [=](const ServerRequest&, ServerAnswer& answer) { answer.first_byte_delay = delay; };
}

Fault DripFault(uint64_t bytes, std::chrono::milliseconds delay) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer.drip_bytes = bytes;
    answer.drip_delay = delay;
  };
}

Fault RedirectFault(std::string location) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer = ServerAnswer{};
    answer.status = 307;
    answer.headers.push_back({"Location", location});
  };
}

Fault DropFault(Cut cut) {
  return [=](const ServerRequest&, ServerAnswer& answer) {
    answer.drop = true;
    answer.cut = cut;
  };
}

Fault HangFault() {
  return [](const ServerRequest&, ServerAnswer& answer) { answer.hang = true; };
}

ServerAnswer AnswerRange(const ServerRequest& request, std::string_view content,
                         std::string_view etag) {
  ServerAnswer answer;
  answer.headers.push_back({"Accept-Ranges", "bytes"});
  if (!etag.empty()) answer.headers.push_back({"ETag", '"' + std::string(etag) + '"'});
  auto range = ReadRange(request.Header("range"), content.size());
  if (!range) {
    answer.body = content;
    return answer;
  }
  std::string size = "/" + std::to_string(content.size());
  if (range->begin >= range->end || range->begin >= content.size()) {
    answer.status = 416;
    answer.headers.push_back({"Content-Range", "bytes *" + size});
    return answer;
  }
  answer.status = 206;
  answer.headers.push_back({"Content-Range", "bytes " + std::to_string(range->begin) + "-" +
                                                 std::to_string(range->end - 1) + size});
  answer.body = content.substr(range->begin, range->end - range->begin);
  return answer;
}

}  // namespace headrace::net
