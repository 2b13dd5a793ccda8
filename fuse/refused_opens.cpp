#include "fuse/refused_opens.h"

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

constexpr auto kRefusalMemory = 2s;

}  // namespace

bool RefusedOpens::refuse(std::int32_t thread, FileId file) {
  Time now = clock_.now();
  const MutexLock lock(mutex_);
  auto found = refused_.find(thread);
  if (found != refused_.end()) {
    bool lately = now - found->second < kRefusalMemory;
    refused_.erase(found);
    if (lately) return false;
  }
  if (refused_.size() >= kOpensMax) refused_.clear();
  if (refresh_.size() >= kOpensMax) refresh_.clear();
  refused_[thread] = now;
  refresh_.insert(file);
  return true;
}

void RefusedOpens::opened(std::int32_t thread) {
  const MutexLock lock(mutex_);
  if (!refused_.empty()) refused_.erase(thread);
}

bool RefusedOpens::take(FileId file) {
  const MutexLock lock(mutex_);
  return refresh_.erase(file) > 0;
}

}  // namespace stdchk::mount
