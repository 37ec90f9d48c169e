#include "headrace/object/peer/peer_protocol.h"

#include <algorithm>
#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/text.h"

namespace headrace::object {
namespace {

constexpr uint32_t kPeerMagic = 0x31505248;  // "HRP1"
constexpr size_t kMaxTextBytes = 4096;       // of one field
constexpr auto kLastAsk = static_cast<uint8_t>(PeerAsk::kAbortUpload);
constexpr auto kLastCode = static_cast<uint16_t>(Code::kIoError);

class FieldWriter {
 public:
  template <typename T>
  void Number(T value) {
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    StoreLittle(out_.data() + at, value);
  }
  // A text that is too long is cut: only messages are ever so long.
  void Text(std::string_view text) {
    text = text.substr(0, kMaxTextBytes);
    Number(static_cast<uint16_t>(text.size()));
    out_ += text;
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Gives zeros and empty texts once something was wrong.
class FieldReader {
 public:
  explicit FieldReader(Bytes bytes) : left_(bytes) {}

  template <typename T>
  T Number() {
    if (!Has(sizeof(T))) return T{};
    return LoadLittle<T>(Skip(sizeof(T)).data());
  }
  std::string Text() {
    const auto bytes = Number<uint16_t>();
    if (bytes > kMaxTextBytes) right_ = false;
    if (!Has(bytes)) return {};
    return std::string(AsText(Skip(bytes)));
  }
  bool right() const { return right_; }
  bool ended() const { return right_ && left_.empty(); }

 private:
  bool Has(size_t bytes) {
    right_ = right_ && bytes <= left_.size();
    return right_;
  }
  Bytes Skip(size_t bytes) {
    const Bytes skipped = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return skipped;
  }

  Bytes left_;
  bool right_ = true;
};

// Reads as many as are said to come, or as there are: memory is taken for what is there only.
template <typename T, typename Read>
std::vector<T> ReadList(FieldReader* in, const Read& read) {
  const auto count = in->Number<uint32_t>();
  std::vector<T> list;
  for (uint32_t i = 0; i < count && in->right(); ++i) list.push_back(read());
  return list;
}

}  // namespace

PeerFrameBytes EncodePeerFrame(std::string_view head, Bytes data) {
  PeerFrameBytes bytes;
  StoreLittle(bytes.data(), kPeerMagic);
  StoreLittle(bytes.data() + 4, static_cast<uint32_t>(head.size()));
  StoreLittle(bytes.data() + 8, static_cast<uint32_t>(data.size()));
  StoreLittle(bytes.data() + 12, Crc32c(AsBytes(head)));
  StoreLittle(bytes.data() + 16, Crc32c(data));
  return bytes;
}

Result<PeerFrame> DecodePeerFrame(const PeerFrameBytes& bytes, uint32_t max_head_bytes) {
  if (LoadLittle<uint32_t>(bytes.data()) != kPeerMagic)
    return Status(Code::kDataLoss, "the other side does not speak as a peer of this version");
  PeerFrame frame{LoadLittle<uint32_t>(bytes.data() + 4), LoadLittle<uint32_t>(bytes.data() + 8),
                  LoadLittle<uint32_t>(bytes.data() + 12), LoadLittle<uint32_t>(bytes.data() + 16)};
  if (frame.head_bytes > max_head_bytes || frame.data_bytes > kMaxPeerDataBytes)
    return Error(Code::kResourceExhausted,
                 "a message of {} and {} bytes came: at most {} and {} are taken", frame.head_bytes,
                 frame.data_bytes, max_head_bytes, kMaxPeerDataBytes);
  return frame;
}

std::string EncodePeerRequest(const PeerRequest& request) {
  FieldWriter out;
  out.Number(static_cast<uint8_t>(request.ask));
  out.Number(static_cast<uint8_t>(request.if_absent ? 1 : 0));
  out.Number(request.offset);
  out.Number(request.number);
  for (const std::string* text :
       {&request.key, &request.match, &request.delimiter, &request.after, &request.token})
    out.Text(*text);
  return out.Take();
}

Result<PeerRequest> DecodePeerRequest(Bytes head) {
  FieldReader in(head);
  PeerRequest request;
  const auto ask = in.Number<uint8_t>();
  const auto flags = in.Number<uint8_t>();
  request.ask = static_cast<PeerAsk>(ask);
  request.if_absent = flags != 0;
  request.offset = in.Number<uint64_t>();
  request.number = in.Number<uint64_t>();
  for (std::string* text :
       {&request.key, &request.match, &request.delimiter, &request.after, &request.token})
    *text = in.Text();
  if (!in.ended() || ask == 0 || ask > kLastAsk || flags > 1)
    return Status(Code::kDataLoss, "what came is no request of a peer");
  return request;
}

std::string EncodePeerAnswer(const PeerAnswer& answer) {
  FieldWriter out;
  out.Number(static_cast<uint16_t>(answer.status.code()));
  out.Text(answer.status.message());
  out.Number(static_cast<uint32_t>(answer.objects.size()));
  for (const ObjectInfo& object : answer.objects) {
    out.Text(object.key);
    out.Number(object.size_bytes);
    out.Text(object.etag);
    out.Number(object.mtime_ns);
  }
  out.Number(static_cast<uint32_t>(answer.prefixes.size()));
  for (const std::string& prefix : answer.prefixes) out.Text(prefix);
  out.Number(static_cast<uint32_t>(answer.uploads.size()));
  for (const PendingUpload& upload : answer.uploads) {
    out.Text(upload.key);
    out.Text(upload.id);
    out.Number(upload.started_ns);
  }
  out.Text(answer.next);
  return out.Take();
}

Result<PeerAnswer> DecodePeerAnswer(Bytes head) {
  FieldReader in(head);
  PeerAnswer answer;
  const auto code = in.Number<uint16_t>();
  const std::string message = in.Text();
  answer.objects = ReadList<ObjectInfo>(&in, [&in] {
    ObjectInfo object;
    object.key = in.Text();
    object.size_bytes = in.Number<uint64_t>();
    object.etag = in.Text();
    object.mtime_ns = in.Number<int64_t>();
    return object;
  });
  answer.prefixes = ReadList<std::string>(&in, [&in] { return in.Text(); });
  answer.uploads = ReadList<PendingUpload>(&in, [&in] {
    PendingUpload upload;
    upload.key = in.Text();
    upload.id = in.Text();
    upload.started_ns = in.Number<int64_t>();
    return upload;
  });
  answer.next = in.Text();
  if (!in.ended() || code > kLastCode)
    return Status(Code::kDataLoss, "what came is no answer of a peer");
  if (code != 0) answer.status = Status(static_cast<Code>(code), EscapeText(message));
  return answer;
}

}  // namespace headrace::object
