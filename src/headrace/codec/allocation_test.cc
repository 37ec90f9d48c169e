// Counts what the transforms allocate per sample, libraries included, by standing in for malloc;
// and lets large allocations fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <tuple>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/codec/pixel_check.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/codec/transform.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_CANNOT_COUNT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define HR_CANNOT_COUNT 1
#endif
#endif

static std::atomic<uint64_t> allocations{0};
// So many large allocations still succeed; negative: all.
static std::atomic<int64_t> large_left{-1};

#if !defined(HR_CANNOT_COUNT) && defined(__GLIBC__)
static bool MayAllocate(size_t bytes) {
  ++allocations;
  if (bytes < 4096 || large_left < 0) return true;
  if (large_left == 0) return false;
  --large_left;
  return true;
}

// NOLINTBEGIN(bugprone-reserved-identifier): glibc's own names for what malloc was
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

__attribute__((visibility("default"))) void* malloc(size_t n) {
  return MayAllocate(n) ? __libc_malloc(n) : nullptr;
}
__attribute__((visibility("default"))) void* calloc(size_t n, size_t m) {
  return MayAllocate(n * m) ? __libc_calloc(n, m) : nullptr;
}
__attribute__((visibility("default"))) void* realloc(void* p, size_t n) {
  return MayAllocate(n) ? __libc_realloc(p, n) : nullptr;
}
__attribute__((visibility("default"))) void* memalign(size_t a, size_t n) {
  return MayAllocate(n) ? __libc_memalign(a, n) : nullptr;
}
__attribute__((visibility("default"))) void* aligned_alloc(size_t a, size_t n) {
  return MayAllocate(n) ? __libc_memalign(a, n) : nullptr;
}
}
// NOLINTEND(bugprone-reserved-identifier)
#else
#undef HR_CANNOT_COUNT
#define HR_CANNOT_COUNT 1
#endif

namespace headrace::codec {
namespace {

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
#ifdef HR_CANNOT_COUNT
    GTEST_SKIP() << "malloc cannot be replaced in this build";
#endif
  }

  // Allocations of 100 samples once everything has been used.
  static uint64_t Steady(const std::string& json, const std::vector<std::string>& fields) {
    return Steady(json, fields, std::vector<std::string>(fields.size()));
  }
  static uint64_t Steady(const std::string& json, const std::vector<std::string>& fields,
                         const std::vector<std::string>& records) {
    auto transform = CreateTransform(json);
    EXPECT_TRUE(transform.ok()) << transform.status().ToString();
    StageRecorder recorder;
    Scratch scratch(&recorder);
    std::vector<std::byte> out((*transform)->output().bytes());
    uint64_t before = 0;
    for (uint64_t i = 0; i < 300; ++i) {
      if (i == 200) before = allocations;
      // The same hundred samples three times: the first round grows the buffers.
      DrawKey key{1, 0, i % 100};
      Status status = (*transform)
                          ->Apply(AsBytes(fields[i % fields.size()]),
                                  {AsBytes(records[i % fields.size()]), {}}, key, &scratch, out);
      EXPECT_TRUE(status.ok()) << status.ToString();
    }
    uint64_t after = allocations;
    uint64_t with_record = static_cast<uint64_t>(std::count_if(
        records.begin(), records.end(), [](const std::string& r) { return !r.empty(); }));
    EXPECT_EQ(scratch.decode_counts()[0], with_record * 300 / fields.size());
    return after - before;
  }
};

const char* const kTrain =
    R"({"type": "image", "dtype": "float32", "ops": [{"op": "random_resized_crop", "size": [64, 64]},
    {"op": "random_horizontal_flip"}, {"op": "normalize", "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}]})";

TEST_F(Allocation, TheCounterWorks) {
  uint64_t before = allocations;
  std::string text(1000, 'x');
  EXPECT_GT(allocations, before);
  EXPECT_EQ(text[0], 'x');
}

TEST_F(Allocation, NonePerSequentialJpeg) {
  std::vector<std::string> files;
  for (int h : {1, 2})
    for (uint32_t channels : {1u, 3u}) {
      JpegOptions options;
      options.h = options.v = h;
      files.push_back(EncodeJpeg(MakePixels(300, 200, channels, 1), options));
    }
  EXPECT_EQ(Steady(kTrain, files), 0u);
}

TEST_F(Allocation, NonePerImageWithSeekPoints) {
  SeekPointBuilder builder;
  std::vector<std::string> files, records;
  for (auto [h, v, restart] : {std::tuple(1, 1, 0), std::tuple(2, 1, 0), std::tuple(2, 2, 7),
                               std::tuple(4, 1, 0), std::tuple(1, 2, 3)}) {
    JpegOptions options;
    options.h = h;
    options.v = v;
    options.restart_mcus = restart;
    files.push_back(EncodeJpeg(MakePixels(300, 200, 3, 1), options));
    Bytes file = AsBytes(files.back());
    ASSERT_EQ(builder.Build(file, Crc32c(file), 8, &records.emplace_back()), SeekRefusal::kNone);
  }
  for (const char* settings : {"", R"("quality": "fast", )", R"("dct_scaling": true, )",
                               R"("quality": "fast", "dct_scaling": true, )"}) {
    std::string json = kTrain;
    json.insert(1, settings);
    EXPECT_EQ(Steady(json, files, records), 0u) << settings;
  }
}

TEST_F(Allocation, NonePerAugmentedImage) {
  std::string json = kTrain;
  json.insert(json.find(R"({"op": "normalize")"),
              R"({"op": "color_jitter", "brightness": [0.5, 1.5], "contrast": [0.5, 1.5],
      "saturation": [0.5, 1.5], "hue": [-0.1, 0.1]}, {"op": "random_grayscale", "p": 0.2},
      {"op": "gaussian_blur", "kernel_size": 9, "p": 0.5}, )");
  JpegOptions options;
  EXPECT_EQ(Steady(json, {EncodeJpeg(MakePixels(300, 200, 3, 1), options)}), 0u);
}

TEST_F(Allocation, NonePerTurnedImage) {
  JpegOptions options;
  std::string file = EncodeJpeg(MakePixels(300, 200, 3, 1), options);
  file.insert(2, std::string("\xff\xe1\0\x22"
                             "Exif\0\0MM\0*\0\0\0\x08\0\x01"
                             "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
                             36));
  EXPECT_EQ(Steady(kTrain, {file}), 0u);
}

TEST_F(Allocation, NonePerLabel) {
  EXPECT_EQ(Steady(R"({"type": "label"})", {"7\n", "true", " 12 "}), 0u);
  EXPECT_EQ(
      Steady(R"({"type": "label", "dtype": "float32", "shape": [3]})", {"[1, 2.5, -3e2]", "1 2 3"}),
      0u);
  EXPECT_EQ(Steady(R"({"type": "label", "path": "/a/1"})", {R"({"b": "x", "a": [0, 5]})"}), 0u);
}

// libjpeg keeps the coefficients of a progressive file in its own pool: some pieces for each file.
TEST_F(Allocation, FewPerProgressiveJpeg) {
  JpegOptions options;
  options.progressive = true;
  EXPECT_LE(Steady(kTrain, {EncodeJpeg(MakePixels(300, 200, 3, 1), options)}), 100u * 12);
}

// Memory that is short is never taken for damage of the file.
TEST_F(Allocation, APixelCheckWithoutMemorySaysSo) {
  JpegOptions options;
  const std::string file = EncodeJpeg(MakePixels(300, 200, 3, 1), options);
  std::string record;
  SeekPointBuilder().Build(AsBytes(file), Crc32c(AsBytes(file)), 8, &record);
  int64_t failures = 0;
  for (int64_t large = 0;; ++large) {
    PixelChecker checker;
    large_left = large;
    auto verdict = checker.Check(AsBytes(file), {AsBytes(record), {}}, 1);
    const bool enough = large_left > 0;
    large_left = -1;
    if (verdict.ok()) {
      EXPECT_EQ(verdict->refusal, SeekRefusal::kNone);
      EXPECT_FALSE(verdict->difference);
      EXPECT_EQ(verdict->num_regions, PixelChecker::kRegions + 1);
    } else {
      EXPECT_EQ(verdict.status().code(), Code::kResourceExhausted) << verdict.status().ToString();
      ++failures;
    }
    if (enough) break;
  }
  EXPECT_GT(failures, 5);
}

}  // namespace
}  // namespace headrace::codec
