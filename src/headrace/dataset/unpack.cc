#include "headrace/dataset/unpack.h"

#include <brotli/decode.h>
#include <bzlib.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <string>

#include "headrace/base/text.h"

namespace headrace::dataset {
namespace {

struct Row {
  std::string_view name;
  Compression compression;
};
constexpr Row kRows[] = {{"zstd", Compression::kZstd},
                         {"gz", Compression::kGzip},
                         {"bz2", Compression::kBzip2},
                         {"snappy", Compression::kSnappy},
                         {"br", Compression::kBrotli}};

std::string_view NameOf(Compression compression) {
  for (const Row& row : kRows)
    if (row.compression == compression) return row.name;
  return "none";
}

Status Damaged(Compression compression, std::string_view why) {
  return Error(Code::kDataLoss, "the {} data cannot be unpacked: {}. Get a good copy of it",
               NameOf(compression), why);
}

Status WrongSize(Compression compression, uint64_t expected) {
  return Damaged(compression,
                 fmt::format("it does not have the {} bytes it should have", expected));
}

Status UnpackZstd(Bytes packed, MutableBytes out) {
  size_t bytes = ZSTD_decompress(out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(bytes)) return Damaged(Compression::kZstd, ZSTD_getErrorName(bytes));
  return bytes == out.size() ? OkStatus() : WrongSize(Compression::kZstd, out.size());
}

// One or more gzip members, one behind the other.
Status UnpackGzip(Bytes packed, MutableBytes out) {
  constexpr size_t kMaxStep = size_t{1} << 30;  // zlib counts in 32 bits
  constexpr int kGzipOnly = 15 + 16;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOnly) != Z_OK)
    return Status(Code::kResourceExhausted, "no memory to unpack gz data");
  std::unique_ptr<z_stream, int (*)(z_stream*)> owner(&stream, &inflateEnd);
  size_t in = 0, done = 0;
  std::byte spare{};  // zlib wants room also to find that nothing is left
  for (;;) {
    const size_t room = std::min(out.size() - done, kMaxStep);
    std::byte* to = room > 0 ? out.data() + done : &spare;
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + in));
    stream.avail_in = static_cast<uInt>(std::min(packed.size() - in, kMaxStep));
    stream.next_out = reinterpret_cast<Bytef*>(to);
    stream.avail_out = static_cast<uInt>(std::max<size_t>(room, 1));
    const uInt given_in = stream.avail_in, given_out = stream.avail_out;
    const int result = inflate(&stream, Z_NO_FLUSH);
    in += given_in - stream.avail_in;
    done += given_out - stream.avail_out;
    if (done > out.size()) return WrongSize(Compression::kGzip, out.size());
    if (result == Z_STREAM_END) {
      if (in == packed.size()) break;
      inflateReset(&stream);
    } else if (result != Z_OK) {
      return Damaged(Compression::kGzip, stream.msg ? stream.msg : "it ends too early");
    }
  }
  return done == out.size() ? OkStatus() : WrongSize(Compression::kGzip, out.size());
}

Status UnpackBzip2(Bytes packed, MutableBytes out) {
  if (packed.size() > UINT32_MAX || out.size() > UINT32_MAX)
    return Damaged(Compression::kBzip2, "it has more than 4 GiB");
  auto bytes = static_cast<unsigned>(out.size());
  char* from = const_cast<char*>(reinterpret_cast<const char*>(packed.data()));
  int result = BZ2_bzBuffToBuffDecompress(reinterpret_cast<char*>(out.data()), &bytes, from,
                                          static_cast<unsigned>(packed.size()), 0, 0);
  if (result == BZ_MEM_ERROR) return Status(Code::kResourceExhausted, "no memory to unpack bz2");
  if (result == BZ_OUTBUFF_FULL) return WrongSize(Compression::kBzip2, out.size());
  if (result != BZ_OK) return Damaged(Compression::kBzip2, fmt::format("error {}", result));
  return bytes == out.size() ? OkStatus() : WrongSize(Compression::kBzip2, out.size());
}

Status UnpackSnappy(Bytes packed, MutableBytes out) {
  const char* from = reinterpret_cast<const char*>(packed.data());
  size_t bytes = 0;
  if (snappy_uncompressed_length(from, packed.size(), &bytes) != SNAPPY_OK)
    return Damaged(Compression::kSnappy, "it has no length");
  if (bytes != out.size()) return WrongSize(Compression::kSnappy, out.size());
  if (snappy_uncompress(from, packed.size(), reinterpret_cast<char*>(out.data()), &bytes) ==
      SNAPPY_OK)
    return OkStatus();
  return Damaged(Compression::kSnappy, "it is damaged");
}

Status UnpackBrotli(Bytes packed, MutableBytes out) {
  size_t bytes = out.size();
  BrotliDecoderResult result =
      BrotliDecoderDecompress(packed.size(), reinterpret_cast<const uint8_t*>(packed.data()),
                              &bytes, reinterpret_cast<uint8_t*>(out.data()));
  if (result != BROTLI_DECODER_RESULT_SUCCESS)
    return Damaged(Compression::kBrotli, "it is damaged, or longer than it should be");
  return bytes == out.size() ? OkStatus() : WrongSize(Compression::kBrotli, out.size());
}

}  // namespace

Result<Compression> ParseCompression(std::string_view text) {
  std::string_view name = text.substr(0, text.find(':'));
  for (const Row& row : kRows)
    if (row.name == name) return row.compression;
  return Error(Code::kUnimplemented,
               "the compression '{}' is not known: zstd, gz, bz2, snappy and br are",
               EscapeText(text));
}

Status Unpack(Compression compression, Bytes packed, MutableBytes out) {
  switch (compression) {
    case Compression::kZstd:
      return UnpackZstd(packed, out);
    case Compression::kGzip:
      return UnpackGzip(packed, out);
    case Compression::kBzip2:
      return UnpackBzip2(packed, out);
    case Compression::kSnappy:
      return UnpackSnappy(packed, out);
    case Compression::kBrotli:
      return UnpackBrotli(packed, out);
    case Compression::kNone:
      break;
  }
  if (packed.size() != out.size()) return WrongSize(compression, out.size());
  std::copy(packed.begin(), packed.end(), out.begin());
  return OkStatus();
}

}  // namespace headrace::dataset
