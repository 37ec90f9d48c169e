// The floor under every loader: what one thread needs for the bare work on files held in memory.
//
//   headrace_floor MODE FILE_LIST|FOLDER [SECONDS] [THREADS]
//
// FILE_LIST names one JPEG a line. Modes:
//   train-float32, train-uint8   random crop decoded, resized, flipped, normalized, into a batch
//   decode-region                only the decoding of the random crop
//   decode-full                  the whole image, default settings
//   check                        center square of each image once; channel means
//   copy, crc32c, disk           the machine's limits (disk writes into FOLDER)
//   read                         the files below FOLDER, past the page cache: the best of several
//   sizes
//                                of blocks and numbers of threads, SECONDS each
//
// With THREADS > 1 that many threads do the same at once, each with its own state. Prints one JSON
// object. No loader: no shuffling, no queue, no hand-over of batches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "clocks.h"
#include "jpeg_region.h"
#include "machine_limits.h"
#include "triangle_resize.h"

namespace headrace::floor {
namespace {

constexpr int kBatchSize = 64;

using Bytes = std::vector<uint8_t>;

std::vector<Bytes> ReadFiles(const std::string& list) {
  std::vector<Bytes> files;
  std::ifstream names(list);
  for (std::string name; std::getline(names, name);) {
    std::ifstream file(name, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return files;
}

// The crop that torchvision's RandomResizedCrop draws with its default settings.
Rect RandomCrop(const Rect& image, std::mt19937_64& random) {
  std::uniform_real_distribution<double> share(0.08, 1.0);
  std::uniform_real_distribution<double> log_ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  const double area = static_cast<double>(image.width) * image.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * share(random);
    const double ratio = std::exp(log_ratio(random));
    const int width = static_cast<int>(std::lround(std::sqrt(target * ratio)));
    const int height = static_cast<int>(std::lround(std::sqrt(target / ratio)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    std::uniform_int_distribution<int> left(0, image.width - width);
    std::uniform_int_distribution<int> top(0, image.height - height);
    return {left(random), top(random), width, height};
  }
  const int width = std::min(image.width, static_cast<int>(std::lround(image.height * 4 / 3.0)));
  const int height = std::min(image.height, static_cast<int>(std::lround(image.width * 4 / 3.0)));
  return {(image.width - width) / 2, (image.height - height) / 2, width, height};
}

Rect CenterSquare(const Rect& image) {
  const int side = std::min(image.width, image.height);
  return {(image.width - side) / 2, (image.height - side) / 2, side, side};
}

// The state of one thread.
class Pipeline {
 public:
  explicit Pipeline(uint64_t seed) : random_(seed) {}

  // Decodes and resizes a random crop of each file. Returns how many files were good.
  template <typename Value>
  size_t Train(const std::vector<Bytes>& files) {
    std::vector<Value>& batch = Batch<Value>();
    batch.resize(static_cast<size_t>(kBatchSize) * kImageValues);
    size_t good = 0;
    for (const Bytes& file : files) {
      const auto image = decoder_.Open(file);
      if (!image) continue;
      const Rect crop = RandomCrop(*image, random_);
      const bool flip = (random_() & 1) != 0;
      const auto pixels = decoder_.DecodeRegion(crop);
      if (!pixels) continue;
      Value* out = batch.data() + (good % kBatchSize) * kImageValues;
      resize_.Run(*pixels, {pixels->left, pixels->top, crop.width, crop.height}, flip, out);
      ++good;
    }
    return good;
  }

  size_t DecodeRegions(const std::vector<Bytes>& files) {
    size_t good = 0;
    for (const Bytes& file : files) {
      const auto image = decoder_.Open(file);
      if (image && decoder_.DecodeRegion(RandomCrop(*image, random_))) ++good;
    }
    return good;
  }

  size_t DecodeWhole(const std::vector<Bytes>& files) {
    size_t good = 0;
    for (const Bytes& file : files) {
      if (decoder_.Open(file) && decoder_.DecodeAll()) ++good;
    }
    return good;
  }

  // Adds the channel means of each file's center square to `sums`, in 0..1.
  size_t Check(const std::vector<Bytes>& files, double (&sums)[3]) {
    std::vector<float> image_values(kImageValues);
    size_t good = 0;
    for (const Bytes& file : files) {
      const auto image = decoder_.Open(file);
      if (!image) continue;
      const Rect crop = CenterSquare(*image);
      const auto pixels = decoder_.DecodeRegion(crop);
      if (!pixels) continue;
      const Rect inside = {pixels->left, pixels->top, crop.width, crop.height};
      resize_.Run(*pixels, inside, false, image_values.data());
      for (int channel = 0; channel < 3; ++channel) {
        const float* plane = image_values.data() + channel * kSize * kSize;
        double sum = 0;
        for (int i = 0; i < kSize * kSize; ++i) sum += plane[i];
        sums[channel] += sum / (kSize * kSize) * kStd[channel] + kMean[channel];
      }
      ++good;
    }
    return good;
  }

 private:
  template <typename Value>
  std::vector<Value>& Batch() {
    if constexpr (std::is_same_v<Value, float>) {
      return floats_;
    } else {
      return bytes_;
    }
  }

  std::mt19937_64 random_;
  RegionDecoder decoder_;
  TriangleResize resize_;
  std::vector<float> floats_;
  std::vector<uint8_t> bytes_;
};

// One pass of `mode` over the files; nothing for a mode that does not exist.
size_t OnePass(const std::string& mode, const std::vector<Bytes>& files, Pipeline& pipeline) {
  if (mode == "train-float32") return pipeline.Train<float>(files);
  if (mode == "train-uint8") return pipeline.Train<uint8_t>(files);
  if (mode == "decode-region") return pipeline.DecodeRegions(files);
  if (mode == "decode-full") return pipeline.DecodeWhole(files);
  return 0;
}

int TimePasses(const std::string& mode, const std::vector<Bytes>& files, double seconds,
               int num_threads) {
  std::vector<size_t> done(num_threads, 0);
  const double wall_start = WallSeconds();
  const double cpu_start = CpuSeconds();
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_threads; ++rank) {
      threads.emplace_back([&, rank] {
        Pipeline pipeline(static_cast<uint64_t>(rank) + 7);
        size_t good = 0;
        do {
          const size_t pass = OnePass(mode, files, pipeline);
          if (pass == 0) break;
          good += pass;
        } while (WallSeconds() - wall_start < seconds);
        done[rank] = good;
      });
    }
  }
  const double cpu = CpuSeconds() - cpu_start;
  const double wall = WallSeconds() - wall_start;
  size_t samples = 0;
  for (const size_t good : done) samples += good;
  if (samples == 0) {
    std::fprintf(stderr, "headrace_floor: mode %s found no image it could decode\n", mode.c_str());
    return 1;
  }
  const double count = static_cast<double>(samples);
  std::printf(
      "{\"result\": {\"samples\": %zu, \"wall_s\": %.4f, \"cpu_s\": %.4f, \"per_s\": %.1f, "
      "\"per_cpu_s\": %.1f, \"microseconds\": %.1f}}\n",
      samples, wall, cpu, count / wall, count / cpu, cpu / count * 1e6);
  return 0;
}

int PrintCheck(const std::vector<Bytes>& files) {
  double sums[3] = {0, 0, 0};
  const size_t good = Pipeline(7).Check(files, sums);
  const double count = static_cast<double>(std::max<size_t>(good, 1));
  std::printf("{\"result\": {\"samples\": %zu, \"channel_means\": [%.4f, %.4f, %.4f]}}\n", good,
              sums[0] / count, sums[1] / count, sums[2] / count);
  return 0;
}

int PrintRate(double bytes_per_second) {
  if (bytes_per_second < 0) {
    std::fprintf(stderr, "headrace_floor: cannot write a file of the disk test\n");
    return 1;
  }
  std::printf("{\"result\": {\"gb_per_s\": %.3f}}\n", bytes_per_second / 1e9);
  return 0;
}

// The fastest way to read the files below `folder`, as a JSON object.
int PrintBestRead(const std::string& folder, double seconds) {
  constexpr size_t kMiB = size_t{1} << 20;
  double best = -1;
  size_t best_block = 0;
  int best_threads = 0;
  for (const size_t block : {kMiB / 4, kMiB, 4 * kMiB}) {
    for (const int threads : {1, 4, 16}) {
      const double rate = DirectReadBytesPerSecond(folder, block, threads, seconds);
      if (rate <= best) continue;
      best = rate;
      best_block = block;
      best_threads = threads;
    }
  }
  if (best < 0) {
    std::fprintf(stderr, "headrace_floor: no file below %s can be read past the page cache\n",
                 folder.c_str());
    return 1;
  }
  std::printf("{\"result\": {\"gb_per_s\": %.3f, \"block_kib\": %zu, \"threads\": %d}}\n",
              best / 1e9, best_block / 1024, best_threads);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: headrace_floor MODE FILE_LIST|FOLDER [SECONDS] [THREADS]\n");
    return 2;
  }
  const std::string mode = argv[1];
  const double seconds = argc > 3 ? std::atof(argv[3]) : 3;
  const int num_threads = argc > 4 ? std::max(1, std::atoi(argv[4])) : 1;
  if (mode == "copy") return PrintRate(CopyBytesPerSecond(seconds));
  if (mode == "crc32c") return PrintRate(Crc32cBytesPerSecond(seconds));
  if (mode == "disk") return PrintRate(DiskWriteBytesPerSecond(argv[2], seconds));
  if (mode == "read") return PrintBestRead(argv[2], seconds);
  const std::vector<Bytes> files = ReadFiles(argv[2]);
  if (mode == "check") return PrintCheck(files);
  return TimePasses(mode, files, seconds, num_threads);
}

}  // namespace
}  // namespace headrace::floor

int main(int argc, char** argv) { return headrace::floor::Main(argc, argv); }
