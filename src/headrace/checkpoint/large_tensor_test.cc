// Tensors of more than 4 GiB, in memory that is zeros but for a few bytes, and files that stay
// there.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headrace/checkpoint/assemble.h"
#include "headrace/checkpoint/rank_writer.h"
#include "headrace/checkpoint/restore.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HR_SANITIZED_ 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HR_SANITIZED_ 1
#endif
#endif

namespace headrace::checkpoint {
namespace {

constexpr uint64_t kFourGiB = uint64_t{4} << 30;
constexpr uint64_t kLargeBytes = kFourGiB + (uint64_t{3} << 20) + 5;

// Address space of zeros, of which only pages that are written to take memory.
class Zeros {
 public:
  explicit Zeros(uint64_t bytes) : bytes_(bytes) {
    void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start != MAP_FAILED) start_ = static_cast<std::byte*>(start);
  }
  ~Zeros() {
    if (start_ != nullptr) ::munmap(start_, bytes_);
  }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  MutableBytes bytes() { return {start_, start_ == nullptr ? 0 : bytes_}; }

 private:
  const uint64_t bytes_;
  std::byte* start_ = nullptr;
};

// Files whose large parts stay where whoever wrote them has them.
class BorrowedFiles final : public DataFiles {
 public:
  const std::string& name() const override { return name_; }
  Status CheckRoom(uint64_t /*bytes*/, const Context& /*ctx*/) override { return OkStatus(); }
  Result<bool> Write(const std::string& key, std::span<const Bytes> parts,
                     const Context& /*ctx*/) override {
    constexpr size_t kOwned = 1 << 20;
    File& file = files_[key];
    for (Bytes part : parts) {
      if (part.size() <= kOwned) part = file.owned.emplace_back(part.begin(), part.end());
      file.parts.push_back(part);
    }
    return true;
  }
  Result<bool> WriteFrom(const std::string& /*key*/, uint64_t /*bytes*/, const NextPiece& /*next*/,
                         const Context& /*ctx*/) override {
    return Status(Code::kUnimplemented, "no file is written piece by piece here");
  }
  Status Sync(const Context& /*ctx*/) override { return OkStatus(); }
  Result<std::unique_ptr<DataFile>> Open(const std::string& key, uint64_t /*bytes*/,
                                         const Context& /*ctx*/) override {
    auto at = files_.find(key);
    if (at == files_.end()) return Error(Code::kNotFound, "{} is not there", key);
    return std::unique_ptr<DataFile>(new Reader(at->second.parts));
  }

 private:
  struct File {
    std::vector<Bytes> parts;
    std::deque<std::vector<std::byte>> owned;
  };
  class Reader final : public DataFile {
   public:
    explicit Reader(const std::vector<Bytes>& parts) : parts_(parts) {}
    Status Read(uint64_t offset, MutableBytes out, const Context& /*ctx*/) override {
      for (Bytes part : parts_) {
        if (offset >= part.size()) {
          offset -= part.size();
          continue;
        }
        const size_t bytes = std::min<uint64_t>(out.size(), part.size() - offset);
        std::memcpy(out.data(), part.data() + offset, bytes);
        out = out.subspan(bytes);
        if (out.empty()) return OkStatus();
        offset = 0;
      }
      return out.empty() ? OkStatus() : Status(Code::kDataLoss, "the file ends before");
    }

   private:
    const std::vector<Bytes>& parts_;
  };

  const std::string name_ = "borrowed";
  std::map<std::string, File> files_;
};

class LargeTensorTest : public ::testing::Test {
 protected:
  // Two tensors in one file, the second behind the large one.
  Result<Manifest> Save() {
    RankSave save;
    save.info.id = {1, 1, 1};
    save.tree = "{}";
    const std::vector<uint64_t> large{kLargeBytes}, small{behind_.size()};
    save.boxes.push_back(
        {save.tensors.Add("/m/a", DType::kU8, large), Box::Whole(large), memory_.bytes(), false});
    save.boxes.push_back(
        {save.tensors.Add("/m/b", DType::kU8, small), Box::Whole(small), Bytes(behind_), false});
    WriteReport report;
    HR_ASSIGN_OR_RETURN(RankManifest rank,
                        RankWriter(&files_, {.max_file_bytes = uint64_t{1} << 40})
                            .Write(save, nullptr, {}, &report));
    Assembler assembler(save.info.id, 1);
    HR_RETURN_IF_ERROR(assembler.Add(rank));
    HR_ASSIGN_OR_RETURN(Manifest whole, assembler.Finish());
    HR_ASSIGN_OR_RETURN(const std::string bytes, EncodeManifest(whole));
    return DecodeManifest(AsBytes(bytes), "manifest");
  }

  // A few bytes of the large tensor.
  Result<std::vector<std::byte>> Read(const Manifest& manifest, uint64_t offset, uint64_t bytes) {
    std::vector<std::byte> out(bytes, std::byte{0xee});
    const WantedBox wanted{*manifest.FindTensor("/m/a"), Box({offset}, {bytes}), out};
    DataFiles* place = &files_;
    RestoreReport report;
    HR_RETURN_IF_ERROR(Restore({&place, 1}, manifest, {&wanted, 1}, {}, {}, &report));
    return out;
  }

  Zeros memory_{kLargeBytes};
  std::vector<std::byte> behind_ = std::vector<std::byte>(1000, std::byte{7});
  BorrowedFiles files_;
};

TEST_F(LargeTensorTest, ComeBackFromBothSidesOfFourGiB) {
#ifdef HR_SANITIZED_
  GTEST_SKIP() << "hashing so much takes too long in this build";
#endif
  ASSERT_EQ(memory_.bytes().size(), kLargeBytes);
  for (uint64_t at : {uint64_t{0}, kFourGiB - 1, kFourGiB, kLargeBytes - 1})
    memory_.bytes()[at] = std::byte(at % 251 + 1);
  auto manifest = Save();
  ASSERT_TRUE(manifest.ok()) << manifest.status().ToString();
  EXPECT_EQ(manifest->data_bytes(), kLargeBytes + behind_.size());
  ASSERT_EQ(manifest->files.size(), 1u);
  EXPECT_GT(manifest->boxes.entry(1).offset, kLargeBytes);
  for (uint64_t at : {uint64_t{0}, kFourGiB - 4, kFourGiB + 1, kLargeBytes - 8}) {
    auto read = Read(*manifest, at, 8);
    ASSERT_TRUE(read.ok()) << read.status().ToString();
    EXPECT_TRUE(std::ranges::equal(*read, memory_.bytes().subspan(at, 8))) << at;
  }
  std::vector<std::byte> small(behind_.size());
  const WantedBox wanted{*manifest->FindTensor("/m/b"), Box::Whole(std::vector{behind_.size()}),
                         small};
  DataFiles* place = &files_;
  RestoreReport report;
  ASSERT_TRUE(Restore({&place, 1}, *manifest, {&wanted, 1}, {}, {}, &report).ok());
  EXPECT_EQ(small, behind_);
  // A changed byte beyond 4 GiB is noticed.
  memory_.bytes()[kFourGiB + 1] = std::byte{9};
  EXPECT_EQ(Read(*manifest, kFourGiB, 8).status().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace headrace::checkpoint
