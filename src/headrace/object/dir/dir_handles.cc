#include "headrace/object/dir/dir_handles.h"

#include <iterator>
#include <utility>

namespace headrace::object {

DirHandles::Found DirHandles::Find(const std::string& path) {
  MutexLock lock(&mu_);
  auto known = by_path_.find(path);
  if (known == by_path_.end()) return {};
  entries_.splice(entries_.begin(), entries_, known->second);
  const Entry& entry = entries_.front();
  return {entry.file, Clock::now() - entry.looked < believed_};
}

uint64_t DirHandles::Turn() const {
  MutexLock lock(&mu_);
  return turn_;
}

void DirHandles::Keep(const std::string& path, File file, uint64_t turn) {
  Entries dropped;  // closed without the lock
  MutexLock lock(&mu_);
  if (turn != turn_ || max_open_ == 0) return;
  if (auto known = by_path_.find(path); known != by_path_.end()) {
    dropped.splice(dropped.begin(), entries_, known->second);
    by_path_.erase(known);
  }
  if (entries_.size() >= max_open_) {
    by_path_.erase(entries_.back().path);
    dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
  }
  entries_.push_front({path, std::move(file), Clock::now()});
  by_path_[path] = entries_.begin();
}

void DirHandles::Confirm(const std::string& path, const File& file) {
  MutexLock lock(&mu_);
  auto known = by_path_.find(path);
  if (known != by_path_.end() && known->second->file == file) known->second->looked = Clock::now();
}

void DirHandles::Forget(const std::string& path) {
  Entries dropped;
  MutexLock lock(&mu_);
  ++turn_;
  auto known = by_path_.find(path);
  if (known == by_path_.end()) return;
  dropped.splice(dropped.begin(), entries_, known->second);
  by_path_.erase(known);
}

size_t DirHandles::num_open() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace headrace::object
