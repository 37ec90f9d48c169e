#include "headrace/codec/boxes_transform.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headrace/codec/draws.h"
#include "headrace/codec/testing/golden_files.h"
#include "headrace/codec/testing/test_images.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

using Row = std::array<float, 5>;

std::shared_ptr<const Transform> Make(const std::string& json) {
  auto transform = CreateTransform(json);
  EXPECT_TRUE(transform.ok()) << transform.status().ToString();
  return *transform;
}

// Transforms an image, then boxes, as a loader does.
class Sample {
 public:
  explicit Sample(std::string file, DrawKey key = {1, 2, 3}) : file_(std::move(file)), key_(key) {}

  std::vector<std::byte> See(const std::string& ops, const std::string& members = "") {
    auto image =
        Make(R"({"type": "image", "layout": "NHWC", )" + members + "\"ops\": [" + ops + "]}");
    std::vector<std::byte> out(image->output().bytes());
    Status status = image->Apply(AsBytes(file_), {}, key_, &scratch_, out);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return out;
  }

  Result<std::vector<Row>> Boxes(const std::string& data,
                                 const std::string& members = R"("max_boxes": 3)") {
    auto boxes = Make(R"({"type": "boxes", )" + members + "}");
    std::vector<Row> rows(static_cast<size_t>(boxes->output().shape[0]));
    Status status =
        boxes->Apply(AsBytes(data), {}, key_, &scratch_, std::as_writable_bytes(std::span(rows)));
    if (!status.ok()) return status;
    return rows;
  }

  void SetKey(DrawKey key) { key_ = key; }

 private:
  std::string file_;
  DrawKey key_;
  Scratch scratch_;
};

std::string Photo(uint32_t width, uint32_t height) {
  return EncodeJpeg(MakePixels(width, height, 3, 1), {});
}

const Row kNone = {0, 0, 0, 0, -1};

TEST(Boxes, AreResizedAndPadded) {
  Sample sample(Photo(100, 50));
  sample.See(R"({"op": "resize", "size": [100, 50]})");
  auto rows = sample.Boxes("[[10, 10, 20, 30], [0, 0, 100, 50]]");
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_EQ(*rows, (std::vector<Row>{{5, 20, 10, 60, 1}, {0, 0, 50, 100, 1}, kNone}));
  EXPECT_EQ(*sample.Boxes("[]"), (std::vector<Row>{kNone, kNone, kNone}));
}

TEST(Boxes, AreMirroredAfterTheCrop) {
  Sample sample(Photo(100, 50));
  sample.See(
      R"({"op": "center_crop", "size": [30, 40]}, {"op": "random_horizontal_flip", "p": 1})");
  // The crop is x from 30 to 70, y from 10 to 40.
  auto rows = sample.Boxes("[[35, 15, 45, 25], [60, 0, 90, 12], [0, 0, 20, 20]]");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0], (Row{25, 5, 35, 15, 1}));
  EXPECT_EQ((*rows)[1], (Row{0, 0, 10, 2, 1}));  // cut off
  EXPECT_EQ((*rows)[2][4], 0);                   // outside
}

TEST(Boxes, AreCutOffAtTheImageInsideOfABorder) {
  Sample sample(Photo(20, 10));
  sample.See(R"({"op": "center_crop", "size": [30, 40]})");
  auto rows = sample.Boxes("[[-5, -5, 100, 100]]");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0], (Row{10, 10, 30, 20, 1}));
}

TEST(Boxes, WhatIsTooSmallOrTurnedAroundIsLost) {
  Sample sample(Photo(100, 50));
  sample.See(R"({"op": "resize", "size": [25, 50]})");
  auto rows = sample.Boxes("[[10, 10, 11, 40], [30, 10, 20, 40], [10, 10, 12, 12]]");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ((*rows)[0][4], 0);
  EXPECT_EQ((*rows)[1][4], 0);
  EXPECT_EQ((*rows)[2], (Row{5, 5, 6, 6, 1}));
  EXPECT_EQ((*sample.Boxes("[[10, 10, 11, 40]]", R"("max_boxes": 1, "min_size": 0.5)"))[0][4], 1);
}

TEST(Boxes, AreReadInEachForm) {
  Sample sample(Photo(100, 50));
  sample.See(R"({"op": "center_crop", "size": [50, 100]})");
  Row want = {1.5, 2, 11.5, 22, 1};
  EXPECT_EQ((*sample.Boxes("[[1.5, 2, 11.5, 22]]"))[0], want);
  EXPECT_EQ((*sample.Boxes("[[1.5, 2, 10, 20]]", R"("max_boxes": 1, "coordinates": "xywh")"))[0],
            want);
  EXPECT_EQ((*sample.Boxes(R"({"a": [1, [[1.5, 2, 11.5, 22]]]})",
                           R"("max_boxes": 1, "path": "/a/1")"))[0],
            want);
  auto rows = sample.Boxes(ReadGolden("boxes.npy"), R"("max_boxes": 2)");
  ASSERT_TRUE(rows.ok()) << rows.status().ToString();
  EXPECT_EQ(*rows, (std::vector<Row>{want, {3, 4, 50, 40, 1}}));
}

TEST(Boxes, FollowThePixelsThroughEveryOrientation) {
  for (int o = 1; o <= 8; ++o) {
    // The stored image is 37 x 26 (make_golden.py); its own upright form is what we compare with.
    Sample sample(ReadGolden("turned_" + std::to_string(o) + ".jpg"));
    bool transposed = o >= 5;
    std::string size = transposed ? "[37, 26]" : "[26, 37]";
    std::vector<std::byte> upright = sample.See(R"({"op": "center_crop", "size": )" + size + "}");
    auto rows = sample.Boxes("[[4, 3, 15, 9]]");
    ASSERT_TRUE(rows.ok());
    Sample raw(ReadGolden("turned_" + std::to_string(o) + ".jpg"));
    std::vector<std::byte> stored =
        raw.See(R"({"op": "center_crop", "size": [26, 37]})", R"("exif_orientation": "ignore", )");
    EXPECT_EQ((*raw.Boxes("[[4, 3, 15, 9]]"))[0], (Row{4, 3, 15, 9, 1}));
    // The same bag of pixels lies under both boxes.
    auto bag = [](const std::vector<std::byte>& pixels, const Row& box, size_t width) {
      std::vector<int> sums;
      for (auto y = static_cast<size_t>(box[1]); y < static_cast<size_t>(box[3]); ++y)
        for (auto x = static_cast<size_t>(box[0]); x < static_cast<size_t>(box[2]); ++x) {
          const std::byte* p = &pixels[(y * width + x) * 3];
          sums.push_back(std::to_integer<int>(p[0]) << 16 | std::to_integer<int>(p[1]) << 8 |
                         std::to_integer<int>(p[2]));
        }
      std::sort(sums.begin(), sums.end());
      return sums;
    };
    EXPECT_EQ(bag(upright, (*rows)[0], transposed ? 26 : 37), bag(stored, {4, 3, 15, 9, 1}, 37))
        << o;
    Row same = (*rows)[0];
    std::string text = fmt::format("[[{}, {}, {}, {}]]", same[0], same[1], same[2], same[3]);
    EXPECT_EQ((*sample.Boxes(text, R"("max_boxes": 1, "relative_to": "upright")"))[0], same);
  }
}

RC_GTEST_PROP(Boxes, FollowTheDrawnCropOfTheirStream, (uint64_t seed, uint64_t id)) {
  static const std::string photo = Photo(120, 90);
  DrawKey key{seed, 7, id};
  Sample sample(photo, key);
  const std::string ops =
      R"({"op": "random_resized_crop", "size": [60, 50]}, {"op": "random_horizontal_flip"})";
  sample.See(ops, R"("stream": 4, )");
  sample.See(ops);
  for (uint64_t stream : {uint64_t{0}, uint64_t{4}}) {
    Rect crop = DrawResizedCrop(OpRandom(key, OpIndex(0, stream)), {}, 120, 90);
    bool flip = OpRandom(key, OpIndex(1, stream)).NextDouble() < 0.5;
    auto rows = sample.Boxes("[[20, 30, 100, 80]]", R"("max_boxes": 1, "min_size": 0, "stream": )" +
                                                        std::to_string(stream));
    RC_ASSERT(rows.ok());
    auto map = [](double at, uint32_t origin, uint32_t in, double out) {
      return std::clamp((at - origin) * out / in, 0.0, out);
    };
    double x1 = map(20, crop.x, crop.width, 50), x2 = map(100, crop.x, crop.width, 50);
    if (flip) std::tie(x1, x2) = std::pair(50 - x2, 50 - x1);
    const Row& row = (*rows)[0];
    RC_ASSERT(std::abs(row[0] - x1) < 1e-4 && std::abs(row[2] - x2) < 1e-4);
    RC_ASSERT(std::abs(row[1] - map(30, crop.y, crop.height, 60)) < 1e-4);
    RC_ASSERT(std::abs(row[3] - map(80, crop.y, crop.height, 60)) < 1e-4);
  }
}

TEST(Boxes, NeedTheImageOfTheirSample) {
  Sample sample(Photo(100, 50));
  EXPECT_EQ(sample.Boxes("[]").status().code(), Code::kInvalidArgument);
  sample.See(R"({"op": "resize", "size": [10, 10]})");
  EXPECT_TRUE(sample.Boxes("[]").ok());
  EXPECT_EQ(sample.Boxes("[]", R"("max_boxes": 1, "stream": 1)").status().code(),
            Code::kInvalidArgument);
  sample.SetKey({1, 2, 4});
  EXPECT_EQ(sample.Boxes("[]").status().code(), Code::kInvalidArgument);
}

TEST(BadBoxes, SayWhatIsWrong) {
  Sample sample(Photo(100, 50));
  sample.See(R"({"op": "resize", "size": [10, 10]})");
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "JSON"},
      {"[[1, 2, 3]]", "a box of 4 numbers at byte 1"},
      {"[[1, 2, 3, 4, 5]]", "a box of 4 numbers at byte 1"},
      {"[1, 2, 3, 4]", "a box of 4 numbers at byte 1 of the JSON text, found a number"},
      {"[[1, 2, 3, null]]", "expected a number at byte 11"},
      {"[[1, 2, 3, 1e999]]", "expected a number at byte 11"},
      {"{}", "an array of boxes"},
      {"[[0,0,1,1],[0,0,1,1],[0,0,1,1],[0,0,1,1]]", "more than the 3 boxes"},
      {ReadGolden("matrix_f4.npy"), "expected [boxes, 4]"},
      {ReadGolden("boxes_nan.npy"), "box 1 has a coordinate that is no finite number"}};
  for (const auto& [data, text] : bad) {
    Status status = sample.Boxes(data).status();
    EXPECT_EQ(status.code(), Code::kDataLoss) << data;
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.ToString();
  }
}

TEST(BadBoxes, DescriptionsNameTheWrongMember) {
  for (const char* members :
       {"", R"(, "max_boxes": 0)", R"(, "max_boxes": 4, "coordinates": "cxcywh")",
        R"(, "max_boxes": 4, "relative_to": "crop")", R"(, "max_boxes": 4, "stream": -1)",
        R"(, "max_boxes": 4, "path": "a")", R"(, "max_boxes": 4, "dtype": "int64")"})
    EXPECT_EQ(CreateTransform(std::string(R"({"type": "boxes")") + members + "}").status().code(),
              Code::kInvalidArgument)
        << members;
}

}  // namespace
}  // namespace headrace::codec
