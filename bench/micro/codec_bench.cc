// Times the image transform on a folder of real files, one thread, files in memory. Not part of the
// default build:
//   cmake --build BUILD --target codec_bench && BUILD/.../codec_bench FOLDER [--benchmark_...]
// "Train" is decode of the crop + resize to 224 + flip + normalize; "Decode" the crop's pixels
// only; "Resize" a 300 x 250 crop to 224 x 224, already decoded.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "headrace/codec/draws.h"
#include "headrace/codec/image.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/transform.h"

namespace headrace::codec {
namespace {

std::vector<std::string> files;

std::string TrainTransform(const char* dtype) {
  std::string normalize =
      R"(, {"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]})";
  return R"({"type": "image", "dtype": ")" + std::string(dtype) +
         R"(", "ops": [{"op": "random_resized_crop", "size": [224, 224]}, {"op": "random_horizontal_flip"})" +
         (dtype == std::string("uint8") ? "" : normalize) + "]}";
}

void Train(benchmark::State& state, const char* dtype) {
  auto transform = CreateTransform(TrainTransform(dtype));
  Scratch scratch;
  size_t bytes = (*transform)->output().bytes(), i = 0;
  std::vector<std::byte> batch(bytes * 64);
  for (auto _ : state) {
    DrawKey key{1, i / files.size(), i % files.size()};
    Status status = (*transform)
                        ->Apply(AsBytes(files[i % files.size()]), {}, key, &scratch,
                                MutableBytes(batch).subspan(i % 64 * bytes, bytes));
    if (!status.ok()) state.SkipWithError(std::string(status.message()).c_str());
    ++i;
  }
}
BENCHMARK_CAPTURE(Train, float32, "float32")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Train, float16, "float16")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Train, uint8, "uint8")->Unit(benchmark::kMicrosecond);

void Decode(benchmark::State& state) {
  Scratch scratch;
  size_t i = 0;
  for (auto _ : state) {
    const std::string& file = files[i % files.size()];
    auto info = ReadImageInfo(AsBytes(file), 1 << 28, &scratch);
    if (!info.ok()) continue;
    Rect region = DrawResizedCrop(OpRandom({1, i / files.size(), i % files.size()}, 0), {},
                                  info->width, info->height);
    auto view = DecodeRegion(AsBytes(file), region, 3, 1 << 28, {}, &scratch);
    benchmark::DoNotOptimize(view.ok());
    ++i;
  }
}
BENCHMARK(Decode)->Unit(benchmark::kMicrosecond);

void Resize(benchmark::State& state, DType dtype) {
  std::vector<uint8_t> pixels(304 * 3 * 251);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 37);
  PixelView view{pixels.data(), 912, 300, 250, 3};
  OutputFormat format{dtype, false, 3, 224, 224, {}, {}};
  format.SetNormalization({0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
  size_t bytes = size_t{3} * 224 * 224 * DTypeBytes(dtype), i = 0;
  std::vector<std::byte> batch(bytes * 64);
  Resizer resizer;
  for (auto _ : state) {
    uint32_t jitter = i & 1;  // so that the weights are computed each time
    if (!resizer.Prepare({300 - jitter, 224, 0, 224}, {250 - jitter, 224, 0, 224}, false)) break;
    view.width = 300 - jitter;
    view.height = 250 - jitter;
    Status status = resizer.Run(view, format, 0, 0, batch.data() + i++ % 64 * bytes);
    benchmark::DoNotOptimize(status.ok());
  }
}
BENCHMARK_CAPTURE(Resize, float32, DType::kFloat32)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Resize, float16, DType::kFloat16)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(Resize, uint8, DType::kUint8)->Unit(benchmark::kMicrosecond);

}  // namespace

int Run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: codec_bench FOLDER [--benchmark_...]\n");
    return 2;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (!entry.is_regular_file() || entry.path().extension() != ".jpg") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  if (files.empty()) {
    std::fprintf(stderr, "no .jpg files in %s\n", argv[1]);
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace headrace::codec

int main(int argc, char** argv) { return headrace::codec::Run(argc, argv); }
