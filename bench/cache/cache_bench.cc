// Reads of blocks that are in the node's cache: from a cold disk, and from the page cache beside
// the copy and check that every such read ends in.
//
//   headrace_cache_bench fill DIRECTORY BYTES            makes a cache of one object
//   headrace_cache_bench cold DIRECTORY always|never|auto IN_FLIGHT READ_BYTES
//                                 reads the object once, after the page cache was told to forget it
//   headrace_cache_bench warm DIRECTORY READ_BYTES THREADS SECONDS
//                                 reads from the page cache and copies in turns, a moment each
//
// Reads go the way of the product, through BlockCache without its tier in memory. Prints one JSON
// object.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"
#include "headrace/cache/block_cache.h"
#include "headrace/env/process.h"
#include "headrace/object/dir/dir_store.h"

namespace headrace::cache {
namespace {

constexpr double kTurnSeconds = 0.3;

double WallSeconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

[[noreturn]] void Fail(const Status& status) {
  std::fprintf(stderr, "headrace_cache_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}
void Check(const Status& status) {
  if (!status.ok()) Fail(status);
}
template <typename T>
T Get(Result<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

// The object that the cache holds, all of it. Its size is kept in a file beside the cache.
std::shared_ptr<CachedObject> ObjectOf(const std::string& directory, uint64_t bytes) {
  auto object = std::make_shared<CachedObject>();
  object->version = {"bench://cache", "object", "1", bytes};
  object->id = IdentifyObject(object->version, object->block_bytes);
  // Where nothing is: a block that is missing ends the program.
  Check(PosixFileSystem()->MakeDirectories(directory + ".origin"));
  object->origin = Get(object::OpenDirStore(directory + ".origin", {}));
  return object;
}

uint64_t CachedBytes(const std::string& directory) {
  return std::stoull(Get(PosixFileSystem()->ReadWhole(directory + ".bytes", 100)));
}

void Fill(const std::string& directory, uint64_t bytes) {
  NodeCacheOptions options;
  options.directory = directory;
  options.limit_bytes = bytes + bytes / 8 + (uint64_t{64} << 20);
  options.free_floor_bytes = 1;
  auto cache = Get(NodeCache::Open(PosixFileSystem(), options, Context()));
  auto object = ObjectOf(directory, bytes);
  std::vector<uint64_t> data(object->block_bytes / 8);
  for (uint64_t number = 0; number < object->num_blocks(); ++number) {
    BlockId id = object->Block(number);
    KeyedRandom random(number);
    for (uint64_t& word : data) word = random.Next();
    auto claim = cache->ClaimBlock(id);
    if (claim.status().code() == Code::kAlreadyExists) continue;
    Check(claim.status());
    Check((*claim)->Admit(object->version, object->block_bytes,
                          std::as_bytes(std::span(data)).first(id.length), {}));
  }
  Check(PosixFileSystem()->WriteAtomically(directory + ".bytes", AsBytes(std::to_string(bytes))));
  std::printf("{\"result\": {\"bytes\": %llu}}\n", static_cast<unsigned long long>(bytes));
}

std::unique_ptr<BlockCache> OpenCache(const std::string& directory, DirectReads direct,
                                      int threads) {
  BlockCacheOptions options;
  options.node.directory = directory;
  options.node.create = false;
  options.node.direct_reads = direct;
  options.memory_bytes = 0;
  options.threads = threads;
  return Get(BlockCache::Create(options));
}

// A fixed number of reads under way at once: whoever ends one begins the next, as long as `next`
// gives offsets.
class Reads {
 public:
  // Returns false at the end. Called by several threads at once.
  using Next = std::function<bool(uint64_t* offset)>;

  Reads(BlockCache* cache, std::shared_ptr<const CachedObject> object, size_t read_bytes,
        int in_flight)
      : cache_(cache), object_(std::move(object)), read_bytes_(read_bytes) {
    for (int i = 0; i < in_flight; ++i) buffers_.emplace_back(read_bytes, '\0');
  }

  // Returns how many bytes were read.
  uint64_t Run(const Next& next) {
    bytes_ = 0;
    pending_ = static_cast<int>(buffers_.size());
    for (std::string& buffer : buffers_) Step(&next, &buffer);
    while (pending_ > 0) pending_.wait(pending_);
    return bytes_;
  }

 private:
  void Step(const Next* next, std::string* buffer) {
    uint64_t offset;
    if (!(*next)(&offset)) {
      --pending_;
      pending_.notify_all();
      return;
    }
    size_t bytes = std::min<uint64_t>(read_bytes_, object_->version.size_bytes - offset);
    cache_->Read(object_, offset, std::as_writable_bytes(std::span(*buffer)).first(bytes),
                 Context(), [this, next, buffer, bytes](const Status& status) {
                   Check(status);
                   bytes_ += bytes;
                   Step(next, buffer);
                 });
  }

  BlockCache* const cache_;
  const std::shared_ptr<const CachedObject> object_;
  const size_t read_bytes_;
  std::vector<std::string> buffers_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<int> pending_{0};
};

Reads::Next InOrder(std::atomic<uint64_t>* at, uint64_t size, size_t read_bytes) {
  return [at, size, read_bytes](uint64_t* offset) {
    *offset = at->fetch_add(read_bytes);
    return *offset < size;
  };
}

void ForgetPages(const CachedObject& object, const DiskTier& tier) {
  for (uint64_t number = 0; number < object.num_blocks(); ++number) {
    BlockId id = object.Block(number);
    std::string path = tier.Of(id)->paths().Block(id, BlockFileKind::kBlock);
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    (void)::fdatasync(fd);
    (void)::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

void Cold(const std::string& directory, const std::string& mode, int in_flight, size_t read_bytes) {
  uint64_t size = CachedBytes(directory);
  auto object = ObjectOf(directory, size);
  DirectReads direct = mode == "always"  ? DirectReads::kAlways
                       : mode == "never" ? DirectReads::kNever
                                         : DirectReads::kAuto;
  auto cache = OpenCache(directory, direct, AvailableCpus());
  ForgetPages(*object, *cache->node());
  Reads reads(cache.get(), object, read_bytes, in_flight);
  std::atomic<uint64_t> at{0};
  double cpu = ProcessCpuSeconds(), wall = WallSeconds();
  auto bytes = static_cast<double>(reads.Run(InOrder(&at, size, read_bytes)));
  wall = WallSeconds() - wall;
  cpu = ProcessCpuSeconds() - cpu;
  std::printf("{\"result\": {\"gb_per_s\": %.4f, \"cpu_s_per_gb\": %.4f, \"driver\": \"%s\"}}\n",
              bytes / 1e9 / wall, cpu / (bytes / 1e9),
              std::string(DriverName(cache->node()->disks()[0]->read_driver())).c_str());
}

// What a turn moved, and what it took.
struct Turn {
  double gigabytes = 0, wall_s = 0, cpu_s = 0;
  double gb_per_s() const { return gigabytes / wall_s; }
  double cpu_s_per_gb() const { return cpu_s / gigabytes; }
};
Turn Timed(const std::function<uint64_t(double start)>& move_bytes) {
  Turn turn;
  double cpu = ProcessCpuSeconds(), wall = WallSeconds();
  turn.gigabytes = static_cast<double>(move_bytes(wall)) / 1e9;
  turn.wall_s = WallSeconds() - wall;
  turn.cpu_s = ProcessCpuSeconds() - cpu;
  return turn;
}

// What a thread does with one piece: reads it to `out`; returns its checksum, none when it failed.
using ReadPiece = std::function<std::optional<uint32_t>(KeyedRandom*, MutableBytes out)>;

// One turn of a crew whose threads read pieces, each to buffers of its own. Returns the bytes.
uint64_t CrewTurn(const ReadPiece& read, size_t piece_bytes, int threads, double start) {
  std::atomic<uint64_t> bytes{0}, checksums{0};
  std::vector<std::thread> crew;
  for (int i = 0; i < threads; ++i)
    crew.emplace_back([&, i] {
      std::vector<std::byte> buffers[] = {std::vector<std::byte>(piece_bytes),
                                          std::vector<std::byte>(piece_bytes)};
      KeyedRandom random(static_cast<uint64_t>(i));
      for (int turn = 0; WallSeconds() - start < kTurnSeconds; ++turn) {
        auto checksum = read(&random, buffers[turn % 2]);  // as many as reads are under way
        if (!checksum) return;
        checksums += *checksum;
        bytes += piece_bytes;
      }
    });
  for (std::thread& thread : crew) thread.join();
  return bytes;
}

// One turn of the limit: each thread copies pieces of `source` and checks them, in one pass or two.
uint64_t CopyTurn(Bytes source, size_t piece_bytes, int threads, bool one_pass, double start) {
  auto copy = [&](KeyedRandom* random, MutableBytes out) -> std::optional<uint32_t> {
    Bytes piece = source.subspan(random->NextBelow(source.size() - piece_bytes), piece_bytes);
    if (one_pass) return CopyWithCrc32c(out.data(), piece);
    std::memcpy(out.data(), piece.data(), piece.size());
    return Crc32c(out);
  };
  return CrewTurn(copy, piece_bytes, threads, start);
}

// One turn of the least that a read from the page cache can be: each thread reads pieces of block
// files by plain system calls, and checks them.
uint64_t SystemTurn(const std::vector<int>& files, size_t piece_bytes, int threads, double start) {
  constexpr size_t kStride = size_t{256} << 10;
  auto read = [&](KeyedRandom* random, MutableBytes out) -> std::optional<uint32_t> {
    uint32_t checksums = 0;
    int file = files[random->NextBelow(files.size())];
    for (size_t at = 0; at < piece_bytes; at += kStride) {
      auto some = out.subspan(at, std::min(kStride, piece_bytes - at));
      if (::pread(file, some.data(), some.size(), static_cast<off_t>(at)) < 0) return std::nullopt;
      checksums += Crc32c(some);
    }
    return checksums;
  };
  return CrewTurn(read, piece_bytes, threads, start);
}

std::vector<int> OpenBlocks(const CachedObject& object, const DiskTier& tier) {
  std::vector<int> files;
  for (uint64_t number = 0; number + 1 < object.num_blocks(); ++number) {
    BlockId id = object.Block(number);
    std::string path = tier.Of(id)->paths().Block(id, BlockFileKind::kBlock);
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd >= 0) files.push_back(fd);
  }
  return files;
}

uint64_t ReadTurn(Reads* reads, uint64_t size, size_t read_bytes, double start) {
  static std::atomic<uint64_t> draws{0};
  return reads->Run([&](uint64_t* offset) {
    if (WallSeconds() - start > kTurnSeconds) return false;
    uint64_t draw = Mix64(++draws);
    // Whole blocks where blocks are read, else anywhere.
    *offset = read_bytes % kDefaultBlockBytes == 0 ? draw % (size / read_bytes) * read_bytes
                                                   : draw % (size - read_bytes);
    return true;
  });
}

double Median(const std::vector<Turn>& turns, double (Turn::*figure)() const) {
  std::vector<double> values;
  for (const Turn& turn : turns) values.push_back((turn.*figure)());
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Warm(const std::string& directory, size_t read_bytes, int threads, double seconds) {
  uint64_t size = CachedBytes(directory);
  auto object = ObjectOf(directory, size);
  auto cache = OpenCache(directory, DirectReads::kNever, threads);
  Reads warming(cache.get(), object, kDefaultBlockBytes, 2);
  std::atomic<uint64_t> at{0};
  (void)warming.Run(InOrder(&at, size, kDefaultBlockBytes));
  std::vector<std::byte> source(std::min<uint64_t>(size, uint64_t{1} << 30));
  for (size_t i = 0; i < source.size(); i += 8) StoreLittle<uint64_t>(&source[i], Mix64(i));
  Reads reads(cache.get(), object, read_bytes, 2 * threads);
  const std::vector<int> files = OpenBlocks(*object, *cache->node());
  std::vector<Turn> read, one_pass, two_passes, system;
  double begin = WallSeconds();
  do {
    read.push_back(Timed([&](double start) { return ReadTurn(&reads, size, read_bytes, start); }));
    for (bool one : {true, false})
      (one ? one_pass : two_passes).push_back(Timed([&](double start) {
        return CopyTurn(source, read_bytes, threads, one, start);
      }));
    system.push_back(
        Timed([&](double start) { return SystemTurn(files, read_bytes, threads, start); }));
  } while (WallSeconds() - begin < seconds);
  for (int file : files) ::close(file);
  std::printf("{\"result\": {");
  const std::pair<const char*, const std::vector<Turn>*> all[] = {
      {"", &read},
      {"copy_in_one_pass_", &one_pass},
      {"copy_in_two_passes_", &two_passes},
      {"system_", &system}};
  for (auto [name, turns] : all)
    std::printf("%s\"%sgb_per_s\": %.4f, \"%scpu_s_per_gb\": %.4f", turns == &read ? "" : ", ",
                name, Median(*turns, &Turn::gb_per_s), name, Median(*turns, &Turn::cpu_s_per_gb));
  std::printf("}}\n");
}

int Main(int argc, char** argv) {
  const std::string mode = argc > 3 ? argv[1] : "";
  auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  if (mode == "fill") {
    Fill(argv[2], number(3));
  } else if (mode == "cold" && argc > 5) {
    Cold(argv[2], argv[3], static_cast<int>(number(4)), number(5));
  } else if (mode == "warm" && argc > 5) {
    Warm(argv[2], number(3), static_cast<int>(number(4)), std::strtod(argv[5], nullptr));
  } else {
    std::fprintf(stderr,
                 "usage: headrace_cache_bench fill DIRECTORY BYTES\n"
                 "       headrace_cache_bench cold DIRECTORY always|never|auto IN_FLIGHT "
                 "READ_BYTES\n"
                 "       headrace_cache_bench warm DIRECTORY READ_BYTES THREADS SECONDS\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace headrace::cache

int main(int argc, char** argv) { return headrace::cache::Main(argc, argv); }
