#include "headrace/cache/testing/counting_origin.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "headrace/base/crc32c.h"
#include "headrace/base/keyed_random.h"

namespace headrace::cache {
namespace {

Status Unimplemented() { return Status(Code::kUnimplemented, "the test's origin only reads"); }

uint64_t KeyOf(const std::string& key, uint64_t version) {
  return HashKey(Crc32c(AsBytes(key)), version);
}

void Fill(uint64_t seed, uint64_t offset, MutableBytes out) {
  for (size_t i = 0; i < out.size();) {
    uint64_t at = offset + i;
    uint64_t word = Mix64(seed + at / 8);
    for (uint64_t b = at % 8; b < 8 && i < out.size(); ++b, ++i)
      out[i] = static_cast<std::byte>(word >> (8 * b));
  }
}

}  // namespace

CountingOrigin::CountingOrigin(uint64_t unit_bytes, std::string name)
    : name_(std::move(name)),
      unit_bytes_(unit_bytes),
      shared_(new(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared) {
  abilities_.get_if_match = true;
}

CountingOrigin::~CountingOrigin() { ::munmap(shared_, sizeof(Shared)); }

void CountingOrigin::Add(const std::string& key, uint64_t size_bytes, uint64_t version) {
  MutexLock lock(&mu_);
  if (counted_key_.empty()) counted_key_ = key;
  objects_[key] = {size_bytes, version};
}

void CountingOrigin::Remove(const std::string& key) {
  MutexLock lock(&mu_);
  objects_.erase(key);
}

std::string CountingOrigin::Content(const std::string& key, uint64_t version, uint64_t offset,
                                    uint64_t length) {
  std::string content(length, '\0');
  Fill(KeyOf(key, version), offset, std::as_writable_bytes(std::span(content)));
  return content;
}

bool CountingOrigin::IsContent(const std::string& key, uint64_t version, uint64_t offset,
                               Bytes out) {
  return AsText(out) == Content(key, version, offset, out.size());
}

void CountingOrigin::FailReads(uint64_t times, Status status) {
  MutexLock lock(&mu_);
  failures_ = times;
  failure_ = std::move(status);
}

void CountingOrigin::OnRead(std::function<void()> hook) {
  MutexLock lock(&mu_);
  hook_ = std::move(hook);
}

uint64_t CountingOrigin::MostFetched(uint64_t units) const {
  return *std::max_element(shared_->units, shared_->units + units);
}
uint64_t CountingOrigin::LeastFetched(uint64_t units) const {
  return *std::min_element(shared_->units, shared_->units + units);
}

void CountingOrigin::ResetCounts() {
  shared_->bytes = shared_->requests = shared_->heads = 0;
  for (std::atomic<uint64_t>& unit : shared_->units) unit = 0;
}

Result<object::ObjectInfo> CountingOrigin::Find(const std::string& key) {
  auto found = objects_.find(key);
  if (found == objects_.end()) return Error(Code::kNotFound, "{}: no object '{}'", name_, key);
  return object::ObjectInfo{key, found->second.size_bytes,
                            fmt::format("v{}", found->second.version), 0};
}

Result<object::ObjectInfo> CountingOrigin::Head(const std::string& key, const Context& ctx) {
  HR_RETURN_IF_ERROR(ctx.Check());
  shared_->heads += 1;
  MutexLock lock(&mu_);
  return Find(key);
}

Result<object::ObjectInfo> CountingOrigin::Answer(const object::GetRequest& request,
                                                  const Context& ctx) {
  std::function<void()> hook;
  {
    MutexLock lock(&mu_);
    hook = hook_;
  }
  if (hook) hook();
  if (delay_.load().count() > 0) std::this_thread::sleep_for(delay_.load());
  HR_RETURN_IF_ERROR(ctx.Check());
  shared_->requests += 1;
  Object object;
  object::ObjectInfo info;
  {
    MutexLock lock(&mu_);
    if (failures_ > 0) {
      --failures_;
      return failure_;
    }
    HR_ASSIGN_OR_RETURN(info, Find(request.key));
    object = objects_[request.key];
    bool counted = request.key == counted_key_;
    for (uint64_t unit = request.offset / unit_bytes_;
         counted && unit * unit_bytes_ < request.offset + request.out.size(); ++unit)
      shared_->units[unit] += 1;
  }
  if (!request.if_match.empty() && request.if_match != info.etag)
    return Error(Code::kFailedPrecondition, "'{}' was replaced", request.key);
  if (request.offset + request.out.size() > object.size_bytes)
    return Error(Code::kOutOfRange, "'{}' has {} bytes", request.key, object.size_bytes);
  Fill(KeyOf(request.key, object.version), request.offset, request.out);
  shared_->bytes += request.out.size();
  return info;
}

void CountingOrigin::SubmitGets(std::vector<object::GetRequest> requests,
                                std::vector<GetDone> dones, const Context& ctx) {
  for (size_t i = 0; i < requests.size(); ++i) dones[i](Answer(requests[i], ctx));
}

Result<std::string> CountingOrigin::Put(const std::string&, Bytes, const object::PutOptions&,
                                        const Context&) {
  return Unimplemented();
}
Status CountingOrigin::Delete(const std::string&, const Context&) { return Unimplemented(); }
Result<object::ListPage> CountingOrigin::List(const object::ListRequest&, const Context&) {
  return Unimplemented();
}
Result<std::unique_ptr<object::Upload>> CountingOrigin::StartUpload(const std::string&,
                                                                    const Context&) {
  return Unimplemented();
}
Result<std::vector<object::PendingUpload>> CountingOrigin::ListUploads(const std::string&,
                                                                       const Context&) {
  return Unimplemented();
}
Status CountingOrigin::AbortUpload(const object::PendingUpload&, const Context&) {
  return Unimplemented();
}

}  // namespace headrace::cache
