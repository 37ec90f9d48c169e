// What a block is called and how its file looks: docs/formats/cache.md. Pure functions, safe from
// any thread. Bytes and names found in a cache's directory are never trusted: each parser says no
// to what does not fit, and nothing of an object's key ever becomes part of a path.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/bytes.h"
#include "headrace/base/keyed_random.h"
#include "headrace/base/status.h"

namespace headrace::cache {

inline constexpr uint32_t kPageBytes = 64 << 10;  // what one CRC32C covers
inline constexpr uint32_t kDefaultBlockBytes = 4 << 20;
inline constexpr uint32_t kMaxBlockBytes = 256 << 20;
inline constexpr uint32_t kHeaderAlignment = 4096;  // data of a block file begins at a multiple

// One version of an object of a store. Two versions that differ in anything are never mixed up.
struct ObjectVersion {
  std::string store;  // which bucket of which endpoint, without secrets
  std::string key;    // any bytes
  std::string etag;
  uint64_t size_bytes = 0;
};

// The name of an object version that is cut into blocks of one size: 128 bits of a SHA-256.
struct ObjectId {
  uint64_t high = 0, low = 0;
  friend auto operator<=>(const ObjectId&, const ObjectId&) = default;
  std::string Hex() const;  // 32 digits
  // kInvalidArgument.
  static Result<ObjectId> FromHex(std::string_view text);
};
ObjectId IdentifyObject(const ObjectVersion& version, uint32_t block_bytes);

// kInvalidArgument unless `block_bytes` is a multiple of kPageBytes up to kMaxBlockBytes.
Status CheckBlockBytes(uint64_t block_bytes);

// A block of an object. Its length follows from the object's size; it is here so that a block can
// be told apart, and counted, by its name alone.
struct BlockId {
  ObjectId object;
  uint64_t number = 0;  // it begins at number * block size
  uint32_t length = 0;  // bytes of data, at least 1
  friend auto operator<=>(const BlockId&, const BlockId&) = default;
  // Well mixed; part of the format of the table of uses.
  uint64_t Hash() const { return HashKey(object.high, object.low, number); }
};
struct BlockIdHash {
  size_t operator()(const BlockId& id) const { return id.Hash(); }
};
// The block `number` of an object of `size_bytes`; number * block_bytes < size_bytes.
BlockId BlockOf(const ObjectId& object, uint64_t size_bytes, uint32_t block_bytes, uint64_t number);

enum class BlockFileKind : uint8_t { kBlock, kTemporary, kLock };
// "<object>-<number>-<length>.blk", ".tmp" or ".lock".
std::string BlockFileName(const BlockId& id, BlockFileKind kind);
struct ParsedBlockName {
  BlockId id;
  BlockFileKind kind = BlockFileKind::kBlock;
};
// kInvalidArgument for a name that BlockFileName does not make.
Result<ParsedBlockName> ParseBlockFileName(std::string_view name);
// The folder a block, or the descriptor of an object, lies in: one of kFanOut, "00" to "1f".
inline constexpr uint32_t kFanOut = 32;
std::string FanOutName(uint32_t folder);
std::string FanOutOf(const BlockId& id);
std::string FanOutOf(const ObjectId& id);

// Size of the header of a block file; a multiple of kHeaderAlignment.
uint32_t BlockHeaderBytes(uint32_t length);
// What a block costs of the limit: its file, in whole 4 KiB.
uint64_t BlockCost(uint32_t length);

struct BlockHeader {
  BlockId id;
  std::vector<uint32_t> page_checksums;  // CRC32C of each page of the data
};
std::string EncodeBlockHeader(const BlockId& id, Bytes data);
// `bytes` begins with the header and may hold more. kDataLoss says what is wrong.
Result<BlockHeader> ParseBlockHeader(Bytes bytes);

// What an object's descriptor file says, for people and for `headrace cache`.
struct ObjectDescriptor {
  ObjectVersion version;
  uint32_t block_bytes = 0;
};
std::string EncodeDescriptor(const ObjectDescriptor& descriptor);
// kDataLoss says what is wrong.
Result<ObjectDescriptor> ParseDescriptor(std::string_view text);

}  // namespace headrace::cache
