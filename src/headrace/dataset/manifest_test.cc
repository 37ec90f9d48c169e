#include "headrace/dataset/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace headrace::dataset {
namespace {

using ::testing::HasSubstr;

Manifest MakeManifest() {
  Manifest m;
  m.fields = {"cls", "jpg"};
  m.classes = {"cat", std::string("d\xffog\n\\")};
  m.parents = {std::string(64, 'a')};
  m.message = "first \"cut\"";
  m.created_by = "headrace 0.1.0";
  m.base = "../data";
  m.shards.push_back({"a/0.tar", "a/0.tar.hridx", 10, 4096, 0xdeadbeefu, 1});
  m.shards.push_back(
      {"\xfe.tar", "1.hridx", uint64_t{1} << 31, uint64_t{1} << 50, std::nullopt, 2});
  return m;
}

void ExpectSame(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(a.ToJson(), b.ToJson());
  EXPECT_EQ(a.ComputeVersion(), b.ComputeVersion());
  EXPECT_EQ(a.classes, b.classes);
  ASSERT_EQ(a.shards.size(), b.shards.size());
  for (size_t i = 0; i < a.shards.size(); ++i) {
    EXPECT_EQ(a.shards[i].name, b.shards[i].name);
    EXPECT_EQ(a.shards[i].crc32c, b.shards[i].crc32c);
  }
}

TEST(Manifest, ReadsWhatItWrote) {
  Manifest m = MakeManifest();
  auto read = Manifest::FromJson(m.ToJson(), "headrace.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectSame(*read, m);
  EXPECT_EQ(m.num_samples(), 10 + (uint64_t{1} << 31));
}

// The stored form never changes: the file was made by tests/compat/dataset/make_golden.py.
TEST(Manifest, ReadsTheGoldenFileOfVersion1) {
  auto read = Manifest::Load(PosixFileSystem(), HEADRACE_GOLDEN_DIR "/manifest_v1.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  ExpectSame(*read, MakeManifest());
  EXPECT_EQ(PosixFileSystem()->ReadWhole(HEADRACE_GOLDEN_DIR "/manifest_v1.json", 1 << 20).value(),
            MakeManifest().ToJson());
  EXPECT_EQ(read->ComputeVersion(),
            "e72d3cdff160027fcbc87eb4823a0721b0133bd09242de9f7250e90f56e5968e");
}

TEST(Manifest, VersionIsTheContentAndNothingElse) {
  const std::string version = MakeManifest().ComputeVersion();
  Manifest m = MakeManifest();
  m.message = m.created_by = m.base = "other";
  m.parents.clear();
  EXPECT_EQ(m.ComputeVersion(), version);
  std::vector<std::function<void(Manifest*)>> changes = {
      [](Manifest* x) { x->kind = "list"; },
      [](Manifest* x) { x->fields.pop_back(); },
      [](Manifest* x) { x->classes[0] = "cow"; },
      [](Manifest* x) { x->shards[0].name = "b"; },
      [](Manifest* x) { x->shards[0].samples = 11; },
      [](Manifest* x) { x->shards[0].bytes = 1; },
      [](Manifest* x) { x->shards[0].crc32c.reset(); },
      [](Manifest* x) { x->shards[0].index_header_crc32c = 9; },
      [](Manifest* x) { std::swap(x->shards[0], x->shards[1]); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Manifest changed = MakeManifest();
    changes[i](&changed);
    EXPECT_NE(changed.ComputeVersion(), version) << i;
  }
}

// An index that gained seek points: its header changed, what it says of the samples did not.
TEST(Manifest, TheVersionStaysWhenSeekPointsAreAdded) {
  Manifest before = MakeManifest(), after = MakeManifest();
  after.shards[0].samples_crc32c = after.shards[0].index_header_crc32c;
  after.shards[0].index_header_crc32c += 1;
  EXPECT_EQ(after.ComputeVersion(), before.ComputeVersion());
  const std::string text = after.ToJson();
  EXPECT_THAT(text, HasSubstr("\"format_version\": 2"));
  EXPECT_THAT(before.ToJson(), HasSubstr("\"format_version\": 1"));
  auto read = Manifest::FromJson(text, "m.json");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->ToJson(), text);
  EXPECT_EQ(read->shards[0].samples_crc32c, after.shards[0].samples_crc32c);
  EXPECT_FALSE(read->shards[1].samples_crc32c.has_value());
  // The checksum covers the header that the version leaves out.
  std::string header =
      fmt::format("\"index_header_crc32c\": {}", after.shards[0].index_header_crc32c);
  std::string other = text;
  other.replace(other.find(header), header.size(), "\"index_header_crc32c\": 77777");
  EXPECT_EQ(Manifest::FromJson(other, "m.json").status().code(), Code::kDataLoss);
}

std::string Replace(std::string text, std::string_view from, std::string_view to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Manifest, NewerFormatSaysSo) {
  std::string text =
      Replace(MakeManifest().ToJson(), "\"format_version\": 1", "\"format_version\": 4");
  Status status = Manifest::FromJson(text, "m.json").status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.ToString(), HasSubstr("newer headrace"));
  EXPECT_THAT(status.ToString(), HasSubstr("version 4"));
}

TEST(Manifest, KindsThatCameLaterRaiseTheFormatVersion) {
  for (const char* kind : {"tfrecord", "mds"}) {
    Manifest manifest = MakeManifest();
    manifest.kind = kind;
    std::string text = manifest.ToJson();
    EXPECT_THAT(text, HasSubstr("\"format_version\": 3"));
    EXPECT_EQ(Manifest::FromJson(text, "m.json").value().kind, kind);
  }
}

TEST(Manifest, FaultsNameTheirPlace) {
  const std::string good = MakeManifest().ToJson();
  std::pair<std::string, const char*> bad[] = {
      {"", "damaged"},
      {"{}", "not a Headrace manifest"},
      {"[1]", "not a Headrace manifest"},
      {good.substr(0, good.size() / 2), "damaged"},
      {Replace(good, "\"a/0.tar\"", "\"/etc/x\""), "shards[0].name"},
      {Replace(good, "\"a/0.tar\"", "\"../x\""), "the part '..'"},
      {Replace(good, "\"samples\": 10,", "\"samples\": -1,"), "shards[0].samples"},
      {Replace(good, "\"samples\": 10,", "\"samples\": 11,"), "its content has version"},
      {Replace(good, "first", "later"), "checksum"},
      {Replace(good, "\"index\"", "\"xndex\""), "shards[0].index is missing"},
      {Replace(good, "\"kind\": \"tar\"", "\"kind\": \"zip\""), "unknown kind"},
  };
  for (const auto& [text, word] : bad) {
    Status status = Manifest::FromJson(text, "m.json").status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << text;
    EXPECT_THAT(status.ToString(), HasSubstr(word));
    EXPECT_EQ(status.location().file, "m.json");
  }
}

TEST(Manifest, RelativeNames) {
  for (const char* name : {"a", "a/b.tar", "..a", "a..", "a/...b", "\n"})
    EXPECT_TRUE(CheckRelativeName(name).ok()) << name;
  for (std::string name : {"", "/a", "..", "a/..", "../a", "a/../b", ".", "a/./b", "a//b", "a/"})
    EXPECT_EQ(CheckRelativeName(name).code(), Code::kInvalidArgument) << name;
  EXPECT_FALSE(CheckRelativeName(std::string_view("a\0b", 3)).ok());
  EXPECT_FALSE(CheckRelativeName(std::string(4097, 'a')).ok());
}

RC_GTEST_PROP(ManifestProperty, FlippedBytesAreFoundOrHarmless, ()) {
  static const std::string good = MakeManifest().ToJson();
  std::string text = good;
  text[*rc::gen::inRange<size_t>(0, text.size())] ^= static_cast<char>(*rc::gen::inRange(1, 256));
  auto read = Manifest::FromJson(text, "m.json");
  if (read.ok()) RC_ASSERT(read->ToJson() == good);
}

}  // namespace
}  // namespace headrace::dataset
