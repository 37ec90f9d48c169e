#include "headrace/cli/seek_points.h"

#include <fmt/core.h>

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace::cli {

void DeclareSeekPoints(Arguments* arguments, std::string* value) {
  arguments->Choice("--seek-points", value, {"8", "4", "off"},
                    "Keep places in each JPEG from which decoding can start, one every 8 or 4 MCUs "
                    "(about 1 or 2 % of the images' bytes), so that crops decode faster");
}

uint32_t SeekSpacing(const std::string& value) {
  if (value == "off") return 0;
  return value == "4" ? 4 : 8;
}

std::string DescribeSeekPoints(const dataset::SeekTally& tally) {
  const uint64_t images = tally.num_images();
  if (images == 0) return {};
  double share = static_cast<double>(tally.record_bytes) /
                 static_cast<double>(std::max<uint64_t>(tally.image_bytes, 1));
  std::string text =
      fmt::format("seek points for {} of {} images, {:.1f} % of their bytes",
                  FormatCount(tally.num_with_points()), FormatCount(images), 100 * share);
  return text + DescribeRefusals("; without: ", tally.images);
}

std::string DescribeRefusals(std::string_view before, const codec::DecodeCounts& images) {
  std::string text;
  for (size_t i = 1; i < images.size(); ++i) {
    if (images[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? before : ", ", FormatCount(images[i]),
                        codec::SeekRefusalName(static_cast<codec::SeekRefusal>(i)));
  }
  return text;
}

}  // namespace headrace::cli
