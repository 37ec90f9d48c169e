// Seek decode against libjpeg-turbo: the same pixels whatever path was taken, on every instruction
// set, and a refusal on whatever is not as it should be.
#include "headrace/codec/seek_decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

#include "headrace/base/crc32c.h"
#include "headrace/codec/image.h"
#include "headrace/codec/seek_points.h"
#include "headrace/codec/testing/draw_region.h"
#include "headrace/codec/testing/instruction_sets.h"
#include "headrace/codec/testing/test_images.h"

namespace headrace::codec {
namespace {

constexpr uint64_t kMaxPixels = 1 << 24;

struct Indexed {
  std::string file, record;
  SeekRefusal refusal = SeekRefusal::kNone;
};

Indexed Index(std::string file, uint32_t spacing = 8) {
  Indexed indexed{std::move(file), {}, {}};
  SeekPointBuilder builder;
  indexed.refusal =
      builder.Build(AsBytes(indexed.file), Crc32c(AsBytes(indexed.file)), spacing, &indexed.record);
  return indexed;
}

// Where the region decoded with the record differs from libjpeg's; "" when it does not.
std::string Difference(const Indexed& image, const Rect& r, uint32_t channels, Scratch* scratch) {
  DecodeHints hints{AsBytes(image.record), std::nullopt};
  auto got = DecodeRegion(AsBytes(image.file), r, channels, kMaxPixels, hints, scratch);
  if (!got.ok()) return std::string(got.status().message());
  std::string bytes;
  for (uint32_t y = 0; y < r.height; ++y)
    bytes.append(reinterpret_cast<const char*>(got->data + y * got->stride), r.width * channels);
  Scratch plain;
  auto want = DecodeRegion(AsBytes(image.file), r, channels, kMaxPixels, {}, &plain);
  if (!want.ok()) return std::string(want.status().message());
  for (uint32_t y = 0; y < r.height; ++y)
    for (uint32_t x = 0; x < r.width * channels; ++x) {
      int a = static_cast<uint8_t>(bytes[y * r.width * channels + x]);
      int b = want->data[y * want->stride + x];
      if (a != b)
        return "row " + std::to_string(y) + " byte " + std::to_string(x) + ": " +
               std::to_string(a) + " for " + std::to_string(b);
    }
  return "";
}

uint64_t SeekCount(const Scratch& scratch) { return scratch.decode_counts()[0]; }

struct Case {
  JpegOptions options;
  uint32_t width = 0, height = 0, channels = 3, spacing = 8;
  uint64_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  const JpegOptions& o = c.options;
  return out << c.width << " x " << c.height << ", " << c.channels << " channels, " << o.h << " x "
             << o.v << ", quality " << o.quality << ", restart " << o.restart_mcus << ", rgb "
             << o.rgb << ", seed " << c.seed;
}

rc::Gen<Case> AnyCase() {
  return rc::gen::exec([] {
    Case c;
    c.width = *rc::gen::inRange(1u, 200u);
    c.height = *rc::gen::inRange(1u, 120u);
    c.channels = *rc::gen::element(1u, 3u, 3u, 3u);
    c.spacing = *rc::gen::element(4u, 8u);
    c.seed = *rc::gen::inRange<uint64_t>(0, 1000);
    c.options.quality = *rc::gen::element(5, 50, 75, 90, 98, 100);
    std::tie(c.options.h, c.options.v) =
        *rc::gen::element(std::pair(1, 1), std::pair(2, 1), std::pair(2, 2), std::pair(2, 2),
                          std::pair(1, 2), std::pair(4, 1), std::pair(4, 2), std::pair(3, 1));
    c.options.rgb = c.channels == 3 && *rc::gen::inRange(0, 8) == 0;
    c.options.optimize = *rc::gen::arbitrary<bool>();
    c.options.restart_mcus = *rc::gen::element(0, 0, 1, 2, 3, 7, 8, 13, 64);
    return c;
  });
}

RC_GTEST_PROP(SeekDecoder, GivesThePixelsOfLibjpeg, ()) {
  Case c = *AnyCase().as("case");
  Indexed image =
      Index(EncodeJpeg(MakePixels(c.width, c.height, c.channels, c.seed), c.options), c.spacing);
  RC_ASSERT(image.refusal == SeekRefusal::kNone);
  Scratch scratch;
  for (int i = 0; i < 6; ++i) {
    Rect r = i == 0 ? Rect{0, 0, c.width, c.height} : DrawRegion(c.width, c.height);
    RC_ASSERT(Difference(image, r, 3, &scratch) == "");
    RC_ASSERT(Difference(image, r, 1, &scratch) == "");
  }
  RC_ASSERT(SeekCount(scratch) == (c.options.rgb ? 6u : 12u));
}

// Every instruction set that this processor has, and the plain form.
TEST(SeekDecoder, AllInstructionSetsGiveTheSamePixels) {
  Case c;
  c.width = 203;
  c.height = 117;
  ForEachTarget([&](int64_t target) {
    for (auto [h, v] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
      c.options.h = h;
      c.options.v = v;
      Indexed image = Index(EncodeJpeg(MakePixels(c.width, c.height, 3, 7), c.options));
      Scratch scratch;
      for (const Rect& r : {Rect{0, 0, 203, 117}, Rect{1, 1, 201, 115}, Rect{77, 31, 100, 50}})
        EXPECT_EQ(Difference(image, r, 3, &scratch), "") << hwy::TargetName(target) << h << v;
      EXPECT_EQ(SeekCount(scratch), 3u);
    }
  });
}

std::string Transformed(const Transform& transform, const std::string& file,
                        const DecodeHints& hints, Scratch* scratch) {
  std::string out(transform.output().bytes(), '\0');
  MutableBytes bytes{reinterpret_cast<std::byte*>(out.data()), out.size()};
  Status status = transform.Apply(AsBytes(file), hints, {1, 2, 3}, scratch, bytes);
  return status.ok() ? out : std::string(status.message());
}

// What an image looks like never depends on the path, whatever the settings.
RC_GTEST_PROP(SeekDecoder, TransformsGiveTheSameOnBothPaths, ()) {
  Case c = *AnyCase().as("case");
  Indexed image =
      Index(EncodeJpeg(MakePixels(c.width, c.height, c.channels, c.seed), c.options), c.spacing);
  RC_ASSERT(image.refusal == SeekRefusal::kNone);
  std::string side = std::to_string(*rc::gen::element(1, 5, 16, 40, 90));
  std::string size = "[" + side + "," + side + "]";
  std::string op = *rc::gen::element<std::string>(
      R"({"op":"random_resized_crop","size":)" + size + "}",
      R"({"op":"resize","short_side":)" + side + R"(},{"op":"center_crop","size":)" + size + "}",
      R"({"op":"center_crop","size":)" + size + "}");
  std::string settings = *rc::gen::element<std::string>(
      R"("quality":"fast")", R"("dct_scaling":true)", R"("quality":"fast","dct_scaling":true)",
      R"("quality":"fast","layout":"NHWC")", R"("channels":1,"dct_scaling":true)");
  auto transform = CreateTransform(R"({"type":"image","ops":[)" + op + "]," + settings + "}");
  RC_ASSERT(transform.ok());
  Scratch scratch;
  std::string plain = Transformed(**transform, image.file, {}, &scratch);
  std::string seek = Transformed(**transform, image.file, {AsBytes(image.record), {}}, &scratch);
  RC_ASSERT(plain == seek);
  RC_ASSERT(SeekCount(scratch) == 1u || (c.options.rgb && settings.find("channels") < 2));
}

TEST(SeekDecoder, SaysWhyAFileHasNoSeekPoints) {
  auto refusal = [](uint32_t channels, const JpegOptions& options) {
    return Index(EncodeJpeg(MakePixels(64, 48, channels, 1), options)).refusal;
  };
  JpegOptions progressive, scans;
  progressive.progressive = true;
  scans.multi_scan = true;
  EXPECT_EQ(refusal(3, progressive), SeekRefusal::kProgressive);
  EXPECT_EQ(refusal(4, {}), SeekRefusal::kColorSpace);
  EXPECT_EQ(refusal(3, scans), SeekRefusal::kNonInterleaved);
  EXPECT_EQ(Index("not an image").refusal, SeekRefusal::kNotJpeg);
  EXPECT_EQ(Index("").refusal, SeekRefusal::kNotJpeg);
}

TEST(SeekDecoder, RecordsSayWhatTheyAre) {
  Indexed image = Index(EncodeJpeg(MakePixels(100, 50, 3, 1), {}), 4);
  auto info = ReadSeekRecordInfo(AsBytes(image.record));
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->width, 100u);
  EXPECT_EQ(info->spacing, 4u);
  EXPECT_EQ(info->num_points, 4u * 2);  // 7 x 4 MCUs
  EXPECT_EQ(ReadSeekRecordInfo({}).status().code(), Code::kDataLoss);
  image.record[0] = 9;
  EXPECT_EQ(ReadSeekRecordInfo(AsBytes(image.record)).status().code(), Code::kFailedPrecondition);
}

// Whatever the record, the pixels stay what they are.
TEST(SeekDecoder, WrongRecordsChangeNothing) {
  Indexed image = Index(EncodeJpeg(MakePixels(150, 90, 3, 1), {}));
  Indexed other = Index(EncodeJpeg(MakePixels(150, 90, 3, 2), {}));
  const Rect r{20, 10, 100, 60};
  Scratch scratch;
  Indexed wrong{image.file, other.record, {}};
  EXPECT_EQ(Difference(wrong, r, 3, &scratch), "");
  EXPECT_EQ(scratch.decode_counts()[static_cast<size_t>(SeekRefusal::kRecordForeign)], 1u);
  KeyedRandom random(1);
  for (int i = 0; i < 300; ++i) {
    wrong.record = image.record;
    size_t at = random.NextBelow(wrong.record.size());
    wrong.record[at] = static_cast<char>(wrong.record[at] ^ (1 + random.NextBelow(255)));
    EXPECT_EQ(Difference(wrong, r, 3, &scratch), "") << at;
  }
  EXPECT_EQ(SeekCount(scratch), 0u);
  for (size_t size : {0, 1, 2, 31, 32, 60}) {
    wrong.record = image.record.substr(0, size);
    EXPECT_EQ(Difference(wrong, r, 3, &scratch), "") << size;
  }
}

// Makes the record's own CRC32C right again.
void Sign(std::string* record) {
  if (record->size() < 32) return;
  Bytes bytes = AsBytes(*record);
  StoreLittle(record->data() + 28, Crc32c(bytes.subspan(32), Crc32c(bytes.first(28))));
}

// Records that lie in a way that no checksum shows: harmless, and nothing of them is left behind.
TEST(SeekDecoder, LiesLeaveNothingBehind) {
  JpegOptions restarts;
  restarts.restart_mcus = 5;
  Scratch scratch;
  KeyedRandom random(3);
  for (const JpegOptions& options : {JpegOptions(), restarts}) {
    Indexed image = Index(EncodeJpeg(MakePixels(330, 190, 3, 4), options));
    const Rect r{40, 20, 250, 150};
    for (int i = 0; i < 1000; ++i) {
      Indexed lie = image;
      for (uint64_t n = 1 + random.NextBelow(3); n > 0; --n) {
        size_t at = 16 + random.NextBelow(lie.record.size() - 16);
        lie.record[at] = static_cast<char>(random.Next());
      }
      Sign(&lie.record);
      auto view =
          DecodeRegion(AsBytes(lie.file), r, 3, kMaxPixels, {AsBytes(lie.record), {}}, &scratch);
      EXPECT_TRUE(view.ok());
      ASSERT_EQ(Difference(image, r, 3, &scratch), "") << i;
    }
  }
}

// What a damaged file gives never depends on whether seek points were made of it.
void ExpectTheSameWithAndWithoutPoints(const std::string& file, const Transform& transform,
                                       Scratch* scratch, size_t where) {
  Indexed image = Index(file);
  EXPECT_EQ(Transformed(transform, file, {}, scratch),
            Transformed(transform, file, {AsBytes(image.record), {}}, scratch))
      << where;
}

TEST(SeekDecoder, DamagedFilesGiveTheSameWithAndWithoutPoints) {
  auto transform =
      CreateTransform(R"({"type":"image","ops":[{"op":"random_resized_crop","size":[30,40]}]})");
  Scratch scratch;
  for (auto [h, v, restart] : {std::tuple(2, 2, 0), std::tuple(1, 1, 3)}) {
    JpegOptions options;
    options.h = h;
    options.v = v;
    options.restart_mcus = restart;
    const std::string file = EncodeJpeg(MakePixels(150, 90, 3, 1), options);
    auto check = [&](const std::string& bad, size_t where) {
      ExpectTheSameWithAndWithoutPoints(bad, **transform, &scratch, where);
    };
    for (size_t size = 0; size < file.size(); size += 64) check(file.substr(0, size), size);
    check(file.substr(0, file.size() - 2), file.size());  // no end marker
    check(file + file, 0);                                // two images
    check(file + std::string(5000, '\xff'), 1);
    // Every marker segment: too short, too long, or left out.
    for (size_t at = 2; file[at + 1] != '\xda';) {
      size_t length =
          static_cast<uint8_t>(file[at + 2]) * 256u + static_cast<uint8_t>(file[at + 3]);
      for (int change : {-2, -1, 1, 2, 300}) {
        std::string bad = file;
        bad[at + 2] = static_cast<char>((length + static_cast<size_t>(change)) >> 8);
        bad[at + 3] = static_cast<char>(length + static_cast<size_t>(change));
        check(bad, at);
      }
      check(file.substr(0, at) + file.substr(at + 2 + length), at);
      if (file[at + 1] == '\xc0') {
        for (unsigned side : {0u, 1u, 65535u}) {
          for (size_t place : {at + 5, at + 7}) {
            std::string bad = file;
            bad[place] = static_cast<char>(side >> 8);
            bad[place + 1] = static_cast<char>(side);
            check(bad, place);
          }
        }
      }
      at += 2 + length;
    }
  }
}

// Coefficients up to the limit of the format, far outside of what pixels give.
std::string RandomCoefficients(uint64_t seed) {
  KeyedRandom random(seed);
  return EncodeCoefficients(48, 40, 8, [&](size_t place) {
    if (random.NextBelow(place < 8 ? 2 : 12) > 0) return 0;
    return static_cast<int>(random.NextBelow(2047)) - 1023;
  });
}

TEST(SeekDecoder, ExtremeCoefficientsGiveTheSamePixelsAtEveryReduction) {
  std::vector<std::shared_ptr<const Transform>> transforms;
  for (const char* side : {"48,40", "24,20", "12,10", "6,5"})
    transforms.push_back(
        *CreateTransform(R"({"type":"image","dct_scaling":true,"ops":[{"op":"resize","size":[)" +
                         std::string(side) + "]}]}"));
  uint64_t used = 0;
  ForEachTarget([&](int64_t target) {
    Scratch scratch;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      Indexed image = Index(RandomCoefficients(seed));
      for (const auto& transform : transforms)
        EXPECT_EQ(Transformed(*transform, image.file, {}, &scratch),
                  Transformed(*transform, image.file, {AsBytes(image.record), {}}, &scratch))
            << hwy::TargetName(target) << " " << seed;
    }
    used += SeekCount(scratch);
  });
  EXPECT_GT(used, 0u);
}

TEST(SeekDecoder, FastIsNearExactAtStrongReductions) {
  TestPixels white{6000, 16, 3, std::vector<uint8_t>(6000 * 16 * 3, 255)};
  auto transform =
      CreateTransform(R"({"type":"image","quality":"fast","ops":[{"op":"resize","size":[8,8]}]})");
  Scratch scratch;
  std::string out = Transformed(**transform, EncodeJpeg(white, {}), {}, &scratch);
  EXPECT_EQ(out, std::string(8 * 8 * 3, '\xff'));
}

TEST(SeekDecoder, DamagedFilesGetNoSeekPoints) {
  std::string file = EncodeJpeg(MakePixels(150, 90, 3, 1), {});
  for (size_t size = 4; size < file.size(); size += 61) {
    Indexed image = Index(file.substr(0, size));
    EXPECT_EQ(image.refusal, SeekRefusal::kDamaged) << size;
    EXPECT_EQ(image.record.size(), 2u);
  }
}

}  // namespace
}  // namespace headrace::codec
