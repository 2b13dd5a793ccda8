#include "fuse/refused_calls.h"

#include <utility>
#include <vector>

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

constexpr auto kRefusalMemory = 2s;

}  // namespace

void RefusedCalls::drop_old(Time now, std::vector<Refused>& ended) {
  for (auto one = refused_.begin(); one != refused_.end();) {
    if (now - one->second.when < kRepeatMax && refused_.size() < kCallsMax) {
      ++one;
      continue;
    }
    ended.push_back(std::move(one->second));
    one = refused_.erase(one);
  }
}

bool RefusedCalls::refuse(std::int32_t thread, FileId file, Call call) {
  const Time now = clock_.now();
  std::vector<Refused> ended;  // declared before the lock: the end of a held file may take time
  const MutexLock lock(mutex_);
  if (const auto found = refused_.find(thread); found != refused_.end()) {
    const bool lately = now - found->second.when < kRefusalMemory;
    const bool again = lately && found->second.holds == 0;
    ended.push_back(std::move(found->second));
    refused_.erase(found);
    if (again) return false;
  }
  drop_old(now, ended);
  if (refresh_.size() >= kCallsMax) refresh_.clear();
  refused_.emplace(thread, Refused{now, call, 0, std::nullopt});
  refresh_.insert(file);
  return true;
}

void RefusedCalls::end(std::int32_t thread) {
  std::optional<Refused> ended;
  const MutexLock lock(mutex_);
  if (refused_.empty()) return;
  const auto found = refused_.find(thread);
  if (found == refused_.end()) return;
  ended = std::move(found->second);
  refused_.erase(found);
}

std::optional<RefusedCalls::Held> RefusedCalls::end_xattr(std::int32_t thread, FileId file) {
  const MutexLock lock(mutex_);
  if (refused_.empty()) return std::nullopt;
  const auto found = refused_.find(thread);
  if (found == refused_.end() || found->second.call != Call::kXattr) return std::nullopt;
  if (!found->second.held || found->second.held->id != file) return std::nullopt;
  std::optional<Held> held = std::move(found->second.held);
  refused_.erase(found);
  return held;
}

bool RefusedCalls::take(FileId file) {
  const MutexLock lock(mutex_);
  return refresh_.erase(file) > 0;
}

bool RefusedCalls::repeats(std::int32_t thread) {
  std::vector<Refused> ended;
  const MutexLock lock(mutex_);
  if (refused_.empty()) return false;
  drop_old(clock_.now(), ended);
  const auto found = refused_.find(thread);
  return found != refused_.end() && found->second.holds < kHoldsMax;
}

void RefusedCalls::hold(std::int32_t thread, Held held) {
  std::optional<Held> ended;
  const MutexLock lock(mutex_);
  const auto found = refused_.find(thread);
  if (found == refused_.end()) {
    ended = std::move(held);
    return;
  }
  // The kernel may look a name up twice for one call.
  const auto& earlier = found->second.held;
  if (earlier && earlier->id == held.id && earlier->error) held.error = earlier->error;
  ended = std::exchange(found->second.held, std::move(held));
  found->second.holds++;
}

std::optional<RefusedCalls::Held> RefusedCalls::held(std::int32_t thread, FileId file) {
  const MutexLock lock(mutex_);
  if (refused_.empty()) return std::nullopt;
  const auto found = refused_.find(thread);
  if (found == refused_.end() || !found->second.held || found->second.held->id != file)
    return std::nullopt;
  return std::exchange(found->second.held, std::nullopt);
}

}  // namespace stdchk::mount
