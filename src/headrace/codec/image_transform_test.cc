#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/stage_timer.h"
#include "headrace/codec/draws.h"
#include "headrace/codec/image.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

using Pixels = std::vector<std::byte>;

std::shared_ptr<const Transform> Make(const std::string& members) {
  auto transform = CreateTransform("{\"type\": \"image\", " + members + "}");
  EXPECT_TRUE(transform.ok()) << transform.status().ToString();
  return *transform;
}

const char* const kTrainOps =
    R"("ops": [{"op": "random_resized_crop", "size": [48, 40]}, {"op": "random_horizontal_flip"}])";

Result<Pixels> Apply(const Transform& transform, const std::string& file, const DrawKey& key,
                     Scratch* scratch) {
  Pixels out(transform.output().bytes());
  Status status = transform.Apply(AsBytes(file), {}, key, scratch, out);
  if (!status.ok()) return status;
  return out;
}

std::string Photo(uint64_t seed = 1, JpegOptions options = {}, uint32_t width = 120,
                  uint32_t height = 90) {
  return EncodeJpeg(MakePixels(width, height, 3, seed), options);
}

TEST(ImageTransform, DescribesItsOutput) {
  auto t = Make(std::string(R"("dtype": "float16", "layout": "NHWC", )") + kTrainOps);
  EXPECT_EQ(t->output().shape, (std::vector<int64_t>{48, 40, 3}));
  EXPECT_EQ(t->output().dtype, DType::kFloat16);
  EXPECT_EQ(t->output().bytes(), 48u * 40 * 3 * 2);
  EXPECT_EQ(Make(std::string(R"("channels": 1, )") + kTrainOps)->output().shape,
            (std::vector<int64_t>{1, 48, 40}));
}

// The fused transform must equal its parts: draw, crop, resize, mirror.
RC_GTEST_PROP(ImageTransform, RandomCropEqualsCropAndResizeByHand,
              (uint64_t seed, uint64_t epoch, uint64_t sample)) {
  static Scratch scratch, other;
  std::string file = Photo(3);
  DrawKey key{seed, epoch, sample};
  auto got = Apply(*Make(kTrainOps), file, key, &scratch);
  RC_ASSERT(got.ok());
  Rect crop = DrawResizedCrop(OpRandom(key, 0), {}, 120, 90);
  bool flip = OpRandom(key, 1).NextDouble() < 0.5;
  auto view = DecodeRegion(AsBytes(file), crop, 3, 1 << 20, {}, &other);
  RC_ASSERT(view.ok());
  TestPixels cut{crop.width, crop.height, 3, {}};
  for (uint32_t y = 0; y < crop.height; ++y)
    cut.data.insert(cut.data.end(), view->data + y * view->stride,
                    view->data + y * view->stride + crop.width * 3);
  Resizer resizer;
  cut.data.resize(cut.data.size() + 64);
  RC_ASSERT(resizer.Prepare({crop.width, 40, 0, 40}, {crop.height, 48, 0, 48}, flip));
  OutputFormat format{DType::kUint8, false, 3, 48, 40, {}, {}};
  format.SetNormalization({0, 0, 0}, {1, 1, 1});
  Pixels want(got->size());
  Rect source = resizer.source();
  PixelView part{cut.data.data() + (source.y * crop.width + source.x) * 3, size_t{crop.width} * 3,
                 source.width, source.height, 3};
  RC_ASSERT(resizer.Run(part, format, 0, 0, want.data()).ok());
  RC_ASSERT(*got == want);
}

TEST(ImageTransform, SameKeySamePixelsWhateverCameBefore) {
  auto t = Make(kTrainOps);
  Scratch used;
  std::vector<std::string> files;
  for (uint64_t i = 0; i < 12; ++i) {
    JpegOptions options;
    options.progressive = i % 3 == 1;
    options.h = 1 + static_cast<int>(i % 2);
    files.push_back(
        Photo(i, options, 60 + 17 * static_cast<uint32_t>(i), 150 - 11 * static_cast<uint32_t>(i)));
  }
  std::vector<Pixels> first;
  for (uint64_t i = 0; i < files.size(); ++i) {
    Scratch fresh;
    first.push_back(*Apply(*t, files[i], {1, 2, i}, &fresh));
  }
  for (int round = 0; round < 2; ++round)
    for (uint64_t i = files.size(); i-- > 0;)
      EXPECT_EQ(*Apply(*t, files[i], {1, 2, i}, &used), first[i]) << i;
}

TEST(ImageTransform, ThreadsAgree) {
  auto t = Make(kTrainOps);
  std::string file = Photo(5);
  std::vector<Pixels> results(4);
  {
    std::vector<std::jthread> threads;
    for (Pixels& result : results)
      threads.emplace_back([&] {
        Scratch scratch;
        for (int i = 0; i < 20; ++i) result = *Apply(*t, file, {9, 9, 9}, &scratch);
      });
  }
  for (const Pixels& result : results) EXPECT_EQ(result, results[0]);
}

TEST(ImageTransform, DrawsDependOnEachPartOfTheKey) {
  auto t = Make(kTrainOps);
  Scratch scratch;
  std::string file = Photo(5);
  Pixels base = *Apply(*t, file, {1, 1, 1}, &scratch);
  EXPECT_NE(base, *Apply(*t, file, {2, 1, 1}, &scratch));
  EXPECT_NE(base, *Apply(*t, file, {1, 2, 1}, &scratch));
  EXPECT_NE(base, *Apply(*t, file, {1, 1, 2}, &scratch));
}

TEST(ImageTransform, RecordsStages) {
  StageRecorder recorder;
  Scratch scratch(&recorder);
  std::string file = Photo(5);
  ASSERT_TRUE(Apply(*Make(kTrainOps), file, {}, &scratch).ok());
  StageReport report{};
  recorder.AddTo(&report);
  const StageTotals& decode = report[static_cast<size_t>(Stage::kDecode)];
  EXPECT_EQ(decode.count, 1u);
  EXPECT_EQ(decode.bytes, file.size());
  EXPECT_GT(decode.busy_ns, 0u);
  EXPECT_EQ(report[static_cast<size_t>(Stage::kTransform)].bytes, 48u * 40 * 3);
}

TEST(ImageTransform, NamesTheWrongMember) {
  const char* crop = R"({"op": "center_crop", "size": [4, 4]})";
  std::string with = std::string("\"ops\": [") + crop;
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"("op": [])", "\"op\": is not known"},
      {R"("ops": [])", "nothing fixes the size"},
      {R"("ops": 3)", "\"ops\": expected an array"},
      {R"("ops": [3])", "ops[0]"},
      {R"("ops": [{}])", "ops[0]: member \"op\""},
      {R"("ops": [{"op": "rotate"}])", "\"rotate\" is not known"},
      {with + R"(, {"op": "resize", "size": [4, 4]}])", "in this order"},
      {with + ", " + crop + "]", "must come once"},
      {R"("ops": [{"op": "resize", "short_side": 8}])", "many sizes"},
      {R"("ops": [{"op": "resize", "short_side": 8, "size": [1, 1]}])", "exactly one"},
      {R"("ops": [{"op": "resize", "size": [0, 8]}])", "ops[0]: member \"size\""},
      {R"("ops": [{"op": "resize", "size": [8]}])", "expected [height, width]"},
      {R"("ops": [{"op": "resize", "size": 8}])", "expected an array"},
      {R"("ops": [{"op": "random_resized_crop", "size": [4, 4], "scale": [0, 1]}])", "\"scale\""},
      {R"("ops": [{"op": "random_resized_crop", "size": [4, 4], "ratio": [2, 1]}])", "\"ratio\""},
      {R"("ops": [{"op": "random_resized_crop", "size": [4, 4]}, {"op": "center_crop", "size": [2, 2]}])",
       "ops[1]"},
      {with + R"(, {"op": "random_horizontal_flip", "p": 2}])", "ops[1]: member \"p\""},
      {with + R"(, {"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}])", "floating-point"},
      {with + R"(, {"op": "normalize", "mean": [0], "std": [1, 1, 1]}], "dtype": "float32")",
       "\"mean\""},
      {with + R"(, {"op": "normalize", "mean": [0, 0, 0], "std": [1, 0, 1]}], "dtype": "float32")",
       "\"std\""},
      {with + R"(], "dtype": "int64")", "\"dtype\""},
      {with + R"(], "layout": "CHW")", "\"layout\""},
      {with + R"(], "channels": 2)", "\"channels\""},
      {with + R"(], "max_pixels": 0)", "\"max_pixels\""}};
  for (const auto& [members, text] : wrong) {
    auto transform = CreateTransform("{\"type\": \"image\", " + members + "}");
    ASSERT_FALSE(transform.ok()) << members;
    EXPECT_EQ(transform.status().code(), Code::kInvalidArgument) << members;
    EXPECT_NE(transform.status().message().find(text), std::string_view::npos)
        << transform.status().ToString();
  }
}

// Bad input
// -----------------------------------------------------------------------------------------

struct Bad {
  std::string file, text;
  Code code = Code::kDataLoss;
};

std::string WithSize(std::string jpeg, uint32_t width, uint32_t height) {
  size_t sof = jpeg.find("\xff\xc0");
  if (sof == std::string::npos) sof = jpeg.find("\xff\xc2");
  jpeg[sof + 5] = static_cast<char>(height >> 8);
  jpeg[sof + 6] = static_cast<char>(height);
  jpeg[sof + 7] = static_cast<char>(width >> 8);
  jpeg[sof + 8] = static_cast<char>(width);
  return jpeg;
}

std::string Patched(std::string file, std::string_view from, std::string_view to) {
  file.replace(file.find(from), from.size(), to);
  return file;
}

TEST(BadImage, SaysWhatItIs) {
  std::string photo = Photo(1), cut = photo.substr(0, photo.size() / 2);
  std::string sof = std::string("\xff\xc0\x00\x11\x08", 5);
  JpegOptions progressive;
  progressive.progressive = true;
  const std::vector<Bad> cases = {
      {"", "empty (0 bytes)"},
      {"hello", "not an image: 5 bytes that begin with \"hello\""},
      {std::string(300, '\0'), "not an image"},
      {"GIF89a...........", "a GIF image", Code::kUnimplemented},
      {"RIFFGGF", "not an image"},
      {"RIFF....WEBPVP8 ", "WebP: the file is truncated"},
      {"\xff\xd8", "truncated at byte 2"},
      {"\xff\xd8\xff", "truncated"},
      {photo.substr(0, 30), "truncated"},
      {cut, "truncated (it has no end marker) (at byte " + std::to_string(cut.size())},
      {photo.substr(0, photo.size() - 2), "no end marker"},
      {cut + "\xff\xd9", "premature end"},
      {WithSize(photo, 65535, 65535), "65500", Code::kResourceExhausted},
      {WithSize(photo, 65000, 65000), "more than the limit of 178956970", Code::kResourceExhausted},
      {WithSize(Photo(1, progressive), 60000, 60000), "more than the limit",
       Code::kResourceExhausted},
      {Patched(photo, sof, std::string("\xff\xc0\x00\x11\x0c", 5)), "12", Code::kUnimplemented},
      {Patched(photo, sof, std::string("\xff\xc3\x00\x11\x08", 5)), "0xc3", Code::kUnimplemented}};
  auto t = Make(R"("ops": [{"op": "resize", "size": [16, 16]}])");
  Scratch scratch;
  Pixels good = *Apply(*t, photo, {}, &scratch);
  for (const Bad& bad : cases) {
    auto out = Apply(*t, bad.file, {}, &scratch);
    ASSERT_FALSE(out.ok()) << bad.text;
    EXPECT_EQ(out.status().code(), bad.code) << out.status().ToString();
    EXPECT_NE(out.status().message().find(bad.text), std::string_view::npos)
        << out.status().ToString() << " for " << bad.text;
    EXPECT_EQ(*Apply(*t, photo, {}, &scratch), good) << "after: " << bad.text;
  }
}

TEST(BadImage, ATruncatedFileFailsForEveryCrop) {
  std::string photo = Photo(1);
  auto t = Make(kTrainOps);
  Scratch scratch;
  for (uint64_t sample = 0; sample < 50; ++sample)
    EXPECT_FALSE(
        Apply(*t, photo.substr(0, photo.size() - 1 - sample), {0, 0, sample}, &scratch).ok());
}

TEST(BadImage, ForgetsTheTablesOfTheLastFile) {
  // A file without quantization tables must fail, whatever was decoded before.
  std::string photo = Photo(1), bare = photo;
  size_t at;
  while ((at = bare.find(std::string("\xff\xdb\x00", 3))) != std::string::npos)
    bare.erase(at, 2 + static_cast<size_t>(static_cast<uint8_t>(bare[at + 3])));
  auto t = Make(R"("ops": [{"op": "resize", "size": [16, 16]}])");
  Scratch scratch;
  ASSERT_TRUE(Apply(*t, photo, {}, &scratch).ok());
  EXPECT_FALSE(Apply(*t, bare, {}, &scratch).ok());
}

TEST(BadImage, AcceptsHarmlessOddities) {
  std::string photo = Photo(1);
  auto t = Make(R"("ops": [{"op": "resize", "size": [16, 16]}])");
  Scratch scratch;
  Pixels good = *Apply(*t, photo, {}, &scratch);
  EXPECT_EQ(*Apply(*t, photo + std::string(1000, 'x'), {}, &scratch), good);
  std::string filler = photo;
  filler.insert(filler.size() - 2,
                std::string(20, '\0'));  // some cameras pad before the end marker
  EXPECT_EQ(*Apply(*t, filler, {}, &scratch), good);
}

RC_GTEST_PROP(BadImage, DamageNeverHarmsTheNextImage, ()) {
  static Scratch scratch;
  static const auto t = Make(kTrainOps);
  static const std::string photo = Photo(8);
  static const Pixels good = *Apply(*t, photo, {}, &scratch);
  JpegOptions options;
  options.progressive = *rc::gen::arbitrary<bool>();
  options.restart_mcus = *rc::gen::element(0, 3);
  std::string broken = Photo(2, options);
  int changes = *rc::gen::inRange(1, 6);
  for (int i = 0; i < changes; ++i)
    broken[*rc::gen::inRange<size_t>(2, broken.size())] =
        static_cast<char>(*rc::gen::inRange(0, 256));
  auto out = Apply(*t, broken, {0, 0, 1}, &scratch);
  (void)out.ok();  // either way
  auto next = Apply(*t, photo, {}, &scratch);
  RC_ASSERT(next.ok());
  RC_ASSERT(*next == good);
}

TEST(Scratch, MemoryStaysBounded) {
  auto t = Make(kTrainOps);
  Scratch scratch;
  std::string file = Photo(1, {}, 500, 375);
  for (uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(Apply(*t, file, {0, 0, i}, &scratch).ok());
  uint64_t held = scratch.memory_bytes();
  EXPECT_LT(held, 500u * 375 * 3 * 2 + (2u << 20));
  for (uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(Apply(*t, file, {0, 1, i}, &scratch).ok());
  EXPECT_LT(scratch.memory_bytes(), held * 3 / 2);
}

TEST(DecodeRegion, RefusesRegionsOutside) {
  Scratch scratch;
  std::string file = Photo(1);
  for (Rect r : {Rect{0, 0, 121, 90}, Rect{120, 0, 1, 1}, Rect{0, 90, 1, 1}, Rect{0, 0, 0, 5},
                 Rect{1, 0, 0xffffffff, 1}})
    EXPECT_EQ(DecodeRegion(AsBytes(file), r, 3, 1 << 20, {}, &scratch).status().code(),
              Code::kOutOfRange);
  EXPECT_EQ(DecodeRegion(AsBytes(file), {0, 0, 1, 1}, 2, 1 << 20, {}, &scratch).status().code(),
            Code::kInvalidArgument);
}

TEST(ReadImageInfo, ReadsTheHeader) {
  Scratch scratch;
  auto info = ReadImageInfo(AsBytes(Photo(1)), 1 << 20, &scratch);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->width, 120u);
  EXPECT_EQ(info->height, 90u);
  EXPECT_EQ(info->channels, 3u);
  EXPECT_EQ(info->format, ImageFormat::kJpeg);
}

}  // namespace
}  // namespace headrace::codec
