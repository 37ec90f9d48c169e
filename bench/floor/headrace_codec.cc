// Headrace's codec alone beside stock libjpeg-turbo: files in memory, no loader.
//
//   headrace_codec_bench measure FILE_LIST [SECONDS] [THREADS]    all variants, by turns
//   headrace_codec_bench count VARIANT FILE_LIST                  one pass inside
//                                          headrace_codec_counted, for callgrind's --toggle-collect
//   headrace_codec_bench resize PIXELS [SECONDS]                  the resize to 224 x 224 alone
//
// FILE_LIST names one JPEG a line. PIXELS holds images one after the other: width and height as
// 32-bit integers, then rows of RGB. Prints one JSON object.
//
// The variants take turns every few files, so that a slow moment of the machine meets all alike,
// and all see the same files and draws. Headrace gets no checksum of the file: it computes what it
// needs before it trusts a record. Files that libjpeg-turbo cannot turn into RGB are left out of
// all.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/codec/draws.h"
#include "headrace/codec/resize.h"
#include "headrace/codec/seek_points.h"
#include "headrace/codec/transform.h"

#include "clocks.h"
#include "jpeg_region.h"
#include "triangle_resize.h"

namespace headrace::floor {
namespace {

constexpr size_t kBatchSize = 64;
constexpr size_t kFilesAtATime = 32;  // files that one variant takes before it is another's turn
constexpr uint32_t kSpacing = 8;      // MCUs from seek point to seek point, as `pack` makes them
constexpr uint64_t kSeed = 7;

constexpr std::string_view kNormalize =
    R"({"op": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]})";

struct File {
  std::string name;
  std::vector<uint8_t> bytes;
  std::string record;
  codec::SeekRefusal refusal = codec::SeekRefusal::kNone;

  Bytes view() const { return std::as_bytes(std::span(bytes)); }
};

// What all threads share.
struct Corpus {
  std::vector<File> files;
  size_t num_left_out = 0;  // files that libjpeg-turbo does not decode to RGB
};

// ---------------------------------------------------------------- variants

enum class Records : uint8_t { kUsed, kIgnored };

// A way to turn a file into pixels, or what is made of it.
struct Variant {
  enum class Kind : uint8_t { kFull, kRegion, kHeadrace, kBuild };
  const char* name;
  Kind kind;
  Records records = Records::kIgnored;
  const char* ops = "";  // of a Headrace transform
  const char* dtype = "float32";
  const char* quality = "exact";
};

constexpr char kTrain[] =
    R"({"op": "random_resized_crop", "size": [224, 224]}, {"op": "random_horizontal_flip"})";
constexpr char kEvaluation[] =
    R"({"op": "resize", "short_side": 256}, {"op": "center_crop", "size": [224, 224]})";

using Kind = Variant::Kind;
constexpr Variant kVariants[] = {
    {"full", Kind::kFull},
    {"region", Kind::kRegion},
    {"exact", Kind::kHeadrace, Records::kUsed, kTrain},
    {"fast", Kind::kHeadrace, Records::kUsed, kTrain, "float32", "fast"},
    {"exact, no seek points", Kind::kHeadrace, Records::kIgnored, kTrain},
    {"fast, no seek points", Kind::kHeadrace, Records::kIgnored, kTrain, "float32", "fast"},
    {"exact uint8", Kind::kHeadrace, Records::kUsed, kTrain, "uint8"},
    {"fast uint8", Kind::kHeadrace, Records::kUsed, kTrain, "uint8", "fast"},
    {"evaluation", Kind::kHeadrace, Records::kUsed, kEvaluation},
    {"evaluation, fast", Kind::kHeadrace, Records::kUsed, kEvaluation, "float32", "fast"},
    {"evaluation, no seek points", Kind::kHeadrace, Records::kIgnored, kEvaluation},
    {"build seek points", Kind::kBuild},
};

std::string TransformJson(const Variant& variant) {
  std::string json = R"({"type": "image", "dtype": ")" + std::string(variant.dtype) + '"';
  if (variant.quality != std::string_view("exact")) {
    json += R"(, "quality": ")" + std::string(variant.quality) + '"';
  }
  json += R"(, "ops": [)" + std::string(variant.ops);
  if (variant.dtype == std::string_view("float32")) json += ", " + std::string(kNormalize);
  return json + "]}";
}

using Step = std::function<bool(const File&, const codec::DrawKey&)>;

// One variant on one thread.
class Runner {
 public:
  explicit Runner(const Variant& variant) : variant_(variant) {
    switch (variant.kind) {
      case Kind::kFull:
        step_ = [this](const File& file, const codec::DrawKey&) { return DecodeWhole(file); };
        return;
      case Kind::kRegion:
        floats_.resize(kBatchSize * kImageValues);
        step_ = [this](const File& file, const codec::DrawKey& key) {
          return DecodeRegion(file, key);
        };
        return;
      case Kind::kBuild:
        step_ = [this](const File& file, const codec::DrawKey&) { return Build(file); };
        return;
      case Kind::kHeadrace:
        PrepareTransform();
    }
  }
  Runner(Runner&&) = delete;

  const Variant& variant() const { return variant_; }
  // Why this build has no such variant; empty if it has.
  const std::string& missing() const { return missing_; }

  // Handles the files [begin, end). The draws depend on `epoch`.
  void Run(const Corpus& corpus, size_t begin, size_t end, uint64_t epoch) {
    for (size_t i = begin; i < end; ++i) {
      if (step_(corpus.files[i], {kSeed, epoch, i})) {
        ++good_;
      } else {
        ++failed_;
      }
    }
  }

  uint64_t good() const { return good_; }
  uint64_t failed() const { return failed_; }
  uint64_t from_seek_points() const { return Sought() - forgotten_; }

  void ForgetCounts() {
    good_ = failed_ = 0;
    forgotten_ = Sought();
  }

 private:
  void PrepareTransform() {
    auto transform = codec::CreateTransform(TransformJson(variant_));
    if (!transform.ok()) {
      missing_ = transform.status().message();
      return;
    }
    transform_ = *std::move(transform);
    batch_.resize(kBatchSize * transform_->output().bytes());
    step_ = [this](const File& file, const codec::DrawKey& key) { return Apply(file, key); };
  }

  bool DecodeWhole(const File& file) {
    return decoder_.Open(file.bytes).has_value() && decoder_.DecodeAll().has_value();
  }

  bool DecodeRegion(const File& file, const codec::DrawKey& key) {
    const auto image = decoder_.Open(file.bytes);
    if (!image) return false;
    const codec::Rect drawn =
        codec::DrawResizedCrop(codec::OpRandom(key, 0), {}, static_cast<uint32_t>(image->width),
                               static_cast<uint32_t>(image->height));
    const Rect crop = {static_cast<int>(drawn.x), static_cast<int>(drawn.y),
                       static_cast<int>(drawn.width), static_cast<int>(drawn.height)};
    const auto pixels = decoder_.DecodeRegion(crop);
    if (!pixels) return false;
    const Rect inside = {pixels->left, pixels->top, crop.width, crop.height};
    const bool flip = (key.sample_id & 1) != 0;
    resize_.Run(*pixels, inside, flip, floats_.data() + Slot() * kImageValues);
    return true;
  }

  bool Apply(const File& file, const codec::DrawKey& key) {
    codec::DecodeHints hints;
    if (variant_.records == Records::kUsed) hints.seek_points = AsBytes(file.record);
    const size_t bytes = transform_->output().bytes();
    const MutableBytes out = MutableBytes(batch_).subspan(Slot() * bytes, bytes);
    const Status status = transform_->Apply(file.view(), hints, key, &scratch_, out);
    if (!status.ok() && failed_ == 0) {
      std::fprintf(stderr, "%s: %s: %s\n", variant_.name, file.name.c_str(),
                   std::string(status.message()).c_str());
    }
    return status.ok();
  }

  bool Build(const File& file) {
    const uint32_t crc32c = Crc32c(file.view());
    builder_.Build(file.view(), crc32c, kSpacing, &record_);
    return true;
  }

  uint64_t Sought() const {
    return scratch_.decode_counts()[static_cast<size_t>(codec::SeekRefusal::kNone)];
  }
  size_t Slot() const { return good_ % kBatchSize; }

  Variant variant_;
  Step step_;
  std::string missing_;
  RegionDecoder decoder_;
  TriangleResize resize_;
  std::shared_ptr<const codec::Transform> transform_;
  codec::Scratch scratch_;
  codec::SeekPointBuilder builder_;
  std::string record_;
  std::vector<float> floats_;
  std::vector<std::byte> batch_;
  uint64_t good_ = 0;
  uint64_t failed_ = 0;
  uint64_t forgotten_ = 0;
};

// ---------------------------------------------------------------- corpus

Corpus ReadCorpus(const std::string& list) {
  Corpus corpus;
  RegionDecoder decoder;
  codec::SeekPointBuilder builder;
  std::ifstream names(list);
  for (std::string name; std::getline(names, name);) {
    std::ifstream stream(name, std::ios::binary);
    File file;
    file.name = name;
    file.bytes.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    if (!decoder.Open(file.bytes) || !decoder.DecodeAll()) {
      ++corpus.num_left_out;
      continue;
    }
    file.refusal = builder.Build(file.view(), Crc32c(file.view()), kSpacing, &file.record);
    corpus.files.push_back(std::move(file));
  }
  // A run that ends before all files were read has seen a fair sample of them.
  std::shuffle(corpus.files.begin(), corpus.files.end(), std::mt19937_64(kSeed));
  return corpus;
}

// ---------------------------------------------------------------- measure

struct Times {
  double cpu = 0;
  double wall = 0;
};

// One variant on all threads.
struct Measurement {
  std::vector<std::unique_ptr<Runner>> runners;  // one a thread
  Times times;

  const Runner& first() const { return *runners.front(); }
};

// Handles the files [begin, end) on each thread at once.
void RunOnThreads(const Corpus& corpus, size_t begin, size_t end, uint64_t epoch,
                  Measurement& measurement) {
  std::vector<double> cpu(measurement.runners.size(), 0);
  const double wall_start = WallSeconds();
  {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < measurement.runners.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const double start = ThreadCpuSeconds();
        measurement.runners[rank]->Run(corpus, begin, end, epoch + (rank << 32));
        cpu[rank] = ThreadCpuSeconds() - start;
      });
    }
  }
  measurement.times.wall += WallSeconds() - wall_start;
  for (const double seconds : cpu) measurement.times.cpu += seconds;
}

std::vector<Measurement> MeasureByTurns(const Corpus& corpus, double seconds, size_t num_threads) {
  std::vector<Measurement> measurements;
  for (const Variant& variant : kVariants) {
    Measurement measurement;
    for (size_t i = 0; i < num_threads; ++i) {
      measurement.runners.push_back(std::make_unique<Runner>(variant));
    }
    if (measurement.first().missing().empty()) {
      // The first files grow the memory, off the clock.
      RunOnThreads(corpus, 0, std::min(kFilesAtATime, corpus.files.size()), 0, measurement);
      for (auto& runner : measurement.runners) runner->ForgetCounts();
      measurement.times = {};
    }
    measurements.push_back(std::move(measurement));
  }
  const double deadline = WallSeconds() + seconds * static_cast<double>(measurements.size());
  size_t begin = 0;
  uint64_t epoch = 1;
  do {
    const size_t end = std::min(begin + kFilesAtATime, corpus.files.size());
    for (Measurement& measurement : measurements) {
      if (!measurement.first().missing().empty()) continue;
      RunOnThreads(corpus, begin, end, epoch, measurement);
    }
    begin = end == corpus.files.size() ? 0 : end;
    if (begin == 0) ++epoch;
  } while (WallSeconds() < deadline);
  return measurements;
}

void PrintMeasurement(const Measurement& measurement, const char* separator) {
  const Runner& first = measurement.first();
  std::printf("%s\"%s\": ", separator, first.variant().name);
  if (!first.missing().empty()) {
    std::printf("{\"missing\": \"this build does not know it\"}");
    return;
  }
  uint64_t good = 0, failed = 0, sought = 0;
  for (const auto& runner : measurement.runners) {
    good += runner->good();
    failed += runner->failed();
    sought += runner->from_seek_points();
  }
  const double count = static_cast<double>(good);
  std::printf(
      "{\"samples\": %llu, \"failed\": %llu, \"from_seek_points\": %llu, \"cpu_s\": %.4f, "
      "\"wall_s\": %.4f, \"per_cpu_s\": %.1f, \"per_s\": %.1f}",
      static_cast<unsigned long long>(good), static_cast<unsigned long long>(failed),
      static_cast<unsigned long long>(sought), measurement.times.cpu, measurement.times.wall,
      count / measurement.times.cpu, count / measurement.times.wall);
}

// What the corpus holds: sizes, and by which reason images have no seek points.
void PrintCorpus(const Corpus& corpus) {
  std::array<uint64_t, codec::kNumSeekRefusals> refusals{};
  uint64_t image_bytes = 0, record_bytes = 0;
  for (const File& file : corpus.files) {
    ++refusals[static_cast<size_t>(file.refusal)];
    image_bytes += file.bytes.size();
    record_bytes += file.record.size();
  }
  std::printf(
      "\"files\": %zu, \"left_out\": %zu, \"image_bytes\": %llu, \"record_bytes\": %llu, "
      "\"refusals\": {",
      corpus.files.size(), corpus.num_left_out, static_cast<unsigned long long>(image_bytes),
      static_cast<unsigned long long>(record_bytes));
  const char* separator = "";
  for (size_t i = 0; i < refusals.size(); ++i) {
    if (refusals[i] == 0) continue;
    const std::string name(codec::SeekRefusalName(static_cast<codec::SeekRefusal>(i)));
    std::printf("%s\"%s\": %llu", separator, i == 0 ? "none" : name.c_str(),
                static_cast<unsigned long long>(refusals[i]));
    separator = ", ";
  }
  std::printf("}");
}

int Measure(const std::string& list, double seconds, size_t num_threads) {
  const Corpus corpus = ReadCorpus(list);
  if (corpus.files.empty()) {
    std::fprintf(stderr, "headrace_codec_bench: no JPEG that can be decoded in %s\n", list.c_str());
    return 1;
  }
  const std::vector<Measurement> measurements = MeasureByTurns(corpus, seconds, num_threads);
  std::printf("{\"result\": {");
  PrintCorpus(corpus);
  std::printf(", \"variants\": {");
  const char* separator = "";
  for (const Measurement& measurement : measurements) {
    PrintMeasurement(measurement, separator);
    separator = ", ";
  }
  std::printf("}}}\n");
  return 0;
}

// ---------------------------------------------------------------- count

}  // namespace
}  // namespace headrace::floor

// The name that callgrind is told; whatever it calls is counted.
extern "C" __attribute__((noinline)) void headrace_codec_counted(
    const std::function<void()>& work) {
  work();
}

namespace headrace::floor {
namespace {

int Count(const std::string& name, const std::string& list) {
  const Corpus corpus = ReadCorpus(list);
  const auto* variant = std::find_if(std::begin(kVariants), std::end(kVariants),
                                     [&](const Variant& v) { return v.name == name; });
  if (variant == std::end(kVariants) || corpus.files.empty()) {
    std::fprintf(stderr, "headrace_codec_bench: no variant %s, or no JPEG in %s\n", name.c_str(),
                 list.c_str());
    return 2;
  }
  Runner runner(*variant);
  if (!runner.missing().empty()) {
    std::printf("{\"result\": {\"missing\": \"this build does not know it\"}}\n");
    return 0;
  }
  runner.Run(corpus, 0, corpus.files.size(), 0);  // memory and tables are there afterwards
  runner.ForgetCounts();
  headrace_codec_counted([&] { runner.Run(corpus, 0, corpus.files.size(), 0); });
  std::printf("{\"result\": {\"samples\": %llu, \"from_seek_points\": %llu}}\n",
              static_cast<unsigned long long>(runner.good()),
              static_cast<unsigned long long>(runner.from_seek_points()));
  return 0;
}

// ---------------------------------------------------------------- resize

struct Picture {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;
};

std::vector<Picture> ReadPictures(const std::string& path) {
  std::vector<Picture> pictures;
  std::ifstream stream(path, std::ios::binary);
  std::array<uint32_t, 2> size{};
  while (stream.read(reinterpret_cast<char*>(size.data()), sizeof(size))) {
    Picture picture{size[0], size[1], std::vector<uint8_t>(size_t{3} * size[0] * size[1])};
    if (!stream.read(reinterpret_cast<char*>(picture.pixels.data()),
                     static_cast<std::streamsize>(picture.pixels.size()))) {
      break;
    }
    pictures.push_back(std::move(picture));
  }
  return pictures;
}

// Resizes all pictures until `seconds` are over; returns how many, false when one failed.
bool ResizeAll(const std::vector<Picture>& pictures, const codec::OutputFormat& format,
               double seconds, uint64_t* count) {
  codec::Resizer resizer;
  const size_t bytes = size_t{kImageValues} * codec::DTypeBytes(format.dtype);
  std::vector<std::byte> batch(kBatchSize * bytes);
  const double deadline = WallSeconds() + seconds;
  do {
    for (const Picture& picture : pictures) {
      const codec::PixelView view = {picture.pixels.data(), size_t{3} * picture.width,
                                     picture.width, picture.height, 3};
      std::byte* out = batch.data() + *count % kBatchSize * bytes;
      if (!resizer.Prepare({picture.width, kSize, 0, kSize}, {picture.height, kSize, 0, kSize},
                           false) ||
          !resizer.Run(view, format, 0, 0, out).ok()) {
        return false;
      }
      ++*count;
    }
  } while (WallSeconds() < deadline);
  return true;
}

int Resize(const std::string& path, double seconds) {
  const std::vector<Picture> pictures = ReadPictures(path);
  const codec::OutputFormat format = {codec::DType::kUint8, true, 3, kSize, kSize, {}, {}};
  uint64_t count = 0;
  if (pictures.empty() || !ResizeAll(pictures, format, 0, &count)) {
    std::fprintf(stderr, "headrace_codec_bench: no pictures to resize in %s\n", path.c_str());
    return 1;
  }
  count = 0;
  const double cpu_start = ThreadCpuSeconds(), wall_start = WallSeconds();
  ResizeAll(pictures, format, seconds, &count);
  const double cpu = ThreadCpuSeconds() - cpu_start, wall = WallSeconds() - wall_start;
  const double images = static_cast<double>(count);
  std::printf(
      "{\"result\": {\"samples\": %llu, \"cpu_s\": %.4f, \"wall_s\": %.4f, \"per_cpu_s\": %.1f, "
      "\"per_s\": %.1f}}\n",
      static_cast<unsigned long long>(count), cpu, wall, images / cpu, images / wall);
  return 0;
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  const double seconds = argc > 3 ? std::strtod(argv[3], nullptr) : 3;
  if (mode == "measure") {
    return Measure(argv[2], seconds,
                   argc > 4 ? std::max(1L, std::strtol(argv[4], nullptr, 10)) : 1);
  }
  if (mode == "count" && argc > 3) return Count(argv[2], argv[3]);
  if (mode == "resize") return Resize(argv[2], seconds);
  std::fprintf(stderr,
               "usage: headrace_codec_bench measure FILE_LIST [SECONDS] [THREADS]\n"
               "       headrace_codec_bench count VARIANT FILE_LIST\n"
               "       headrace_codec_bench resize PIXELS [SECONDS]\n");
  return 2;
}

}  // namespace
}  // namespace headrace::floor

int main(int argc, char** argv) { return headrace::floor::Main(argc, argv); }
