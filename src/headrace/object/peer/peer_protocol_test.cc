#include "headrace/object/peer/peer_protocol.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace::object {
namespace {

PeerRequest AnyRequest() {
  PeerRequest request;
  request.ask = PeerAsk::kList;
  request.if_absent = true;
  request.key = std::string("a/../b\0c", 8);
  request.match = "etag";
  request.delimiter = "/";
  request.after = "a";
  request.token = std::string(1024, '\xff');
  request.offset = uint64_t{1} << 60;
  request.number = 7;
  return request;
}

PeerAnswer AnyAnswer() {
  PeerAnswer answer;
  answer.status = Status(Code::kNotFound, "nothing is there");
  answer.objects.resize(2);
  answer.objects[0] = {.key = "a", .size_bytes = 3, .etag = "e", .mtime_ns = -5};
  answer.objects[1].key = "b";
  answer.prefixes = {"p/", std::string("\0", 1)};
  answer.uploads = {{"key", "id", 77}};
  answer.next = "next";
  return answer;
}

TEST(PeerProtocol, RequestsComeThrough) {
  const PeerRequest sent = AnyRequest();
  auto got = DecodePeerRequest(AsBytes(EncodePeerRequest(sent)));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->ask, sent.ask);
  EXPECT_EQ(got->if_absent, sent.if_absent);
  EXPECT_EQ(got->key, sent.key);
  EXPECT_EQ(got->match, sent.match);
  EXPECT_EQ(got->delimiter, sent.delimiter);
  EXPECT_EQ(got->after, sent.after);
  EXPECT_EQ(got->token, sent.token);
  EXPECT_EQ(got->offset, sent.offset);
  EXPECT_EQ(got->number, sent.number);
}

TEST(PeerProtocol, AnswersComeThrough) {
  const PeerAnswer sent = AnyAnswer();
  auto got = DecodePeerAnswer(AsBytes(EncodePeerAnswer(sent)));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->status.code(), Code::kNotFound);
  EXPECT_EQ(got->status.message(), "nothing is there");
  ASSERT_EQ(got->objects.size(), 2u);
  EXPECT_EQ(got->objects[0].key, "a");
  EXPECT_EQ(got->objects[0].size_bytes, 3u);
  EXPECT_EQ(got->objects[0].etag, "e");
  EXPECT_EQ(got->objects[0].mtime_ns, -5);
  EXPECT_EQ(got->prefixes, sent.prefixes);
  ASSERT_EQ(got->uploads.size(), 1u);
  EXPECT_EQ(got->uploads[0].key, "key");
  EXPECT_EQ(got->uploads[0].id, "id");
  EXPECT_EQ(got->uploads[0].started_ns, 77);
  EXPECT_EQ(got->next, "next");
}

TEST(PeerProtocol, APartOfAMessageIsNone) {
  const std::string request = EncodePeerRequest(AnyRequest());
  for (size_t bytes = 0; bytes < request.size(); ++bytes)
    EXPECT_EQ(DecodePeerRequest(AsBytes(request).first(bytes)).status().code(), Code::kDataLoss);
  EXPECT_FALSE(DecodePeerRequest(AsBytes(request + "x")).ok());
  const std::string answer = EncodePeerAnswer(AnyAnswer());
  for (size_t bytes = 0; bytes < answer.size(); ++bytes)
    EXPECT_EQ(DecodePeerAnswer(AsBytes(answer).first(bytes)).status().code(), Code::kDataLoss);
  EXPECT_FALSE(DecodePeerAnswer(AsBytes(answer + "x")).ok());
}

TEST(PeerProtocol, RefusesWhatItDoesNotKnow) {
  std::string request = EncodePeerRequest(AnyRequest());
  for (const char ask : {'\0', '\x0c', '\xff'}) {
    request[0] = ask;
    EXPECT_FALSE(DecodePeerRequest(AsBytes(request)).ok());
  }
  request = EncodePeerRequest(AnyRequest());
  request[1] = 2;
  EXPECT_FALSE(DecodePeerRequest(AsBytes(request)).ok());
  std::string answer = EncodePeerAnswer({});
  answer[0] = 99;
  EXPECT_FALSE(DecodePeerAnswer(AsBytes(answer)).ok());
}

TEST(PeerProtocol, ACountTakesNoMemoryByItself) {
  // An answer that says it lists four thousand million objects, and has none.
  std::string answer = EncodePeerAnswer({});
  for (size_t at = 4; at < 8; ++at) answer[at] = '\xff';
  EXPECT_EQ(DecodePeerAnswer(AsBytes(answer)).status().code(), Code::kDataLoss);
}

TEST(PeerProtocol, AMessageForPeopleIsOneLine) {
  PeerAnswer answer;
  answer.status = Status(Code::kInternal, "two\nlines \x1b[31m");
  auto got = DecodePeerAnswer(AsBytes(EncodePeerAnswer(answer)));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->status.message(), "two\\nlines \\x1b[31m");
  answer.status = Status(Code::kInternal, std::string(100'000, 'x'));
  got = DecodePeerAnswer(AsBytes(EncodePeerAnswer(answer)));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->status.message().size(), 4096u);
}

TEST(PeerProtocol, FramesAreBounded) {
  const std::string data(100, 'd');
  const PeerFrameBytes right = EncodePeerFrame("head", AsBytes(data));
  auto frame = DecodePeerFrame(right, 4);
  ASSERT_TRUE(frame.ok()) << frame.status().ToString();
  EXPECT_EQ(frame->head_bytes, 4u);
  EXPECT_EQ(frame->data_bytes, 100u);
  EXPECT_EQ(DecodePeerFrame(right, 3).status().code(), Code::kResourceExhausted);
  PeerFrameBytes wrong = right;
  StoreLittle(wrong.data() + 8, kMaxPeerDataBytes + 1);
  EXPECT_EQ(DecodePeerFrame(wrong, 4).status().code(), Code::kResourceExhausted);
  for (size_t at = 0; at < 4; ++at) {
    wrong = right;
    wrong[at] ^= std::byte{1};
    EXPECT_EQ(DecodePeerFrame(wrong, 4).status().code(), Code::kDataLoss);
  }
}

}  // namespace
}  // namespace headrace::object
