#include "fuse/refused_opens.h"

#include <utility>
#include <vector>

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

constexpr auto kRefusalMemory = 2s;

}  // namespace

bool RefusedOpens::refuse(std::int32_t thread, FileId file) {
  const Time now = clock_.now();
  std::vector<Refused> over;  // declared before the lock: the end of a held file may take time
  const MutexLock lock(mutex_);
  for (auto one = refused_.begin(); one != refused_.end();) {
    const bool lately = now - one->second.when < kRefusalMemory;
    const bool mine = one->first == thread;
    if (!mine && now - one->second.when < kRepeatMax && refused_.size() < kOpensMax) {
      ++one;
      continue;
    }
    const bool again = mine && lately && one->second.holds == 0;
    over.push_back(std::move(one->second));
    one = refused_.erase(one);
    if (again) return false;
  }
  if (refresh_.size() >= kOpensMax) refresh_.clear();
  refused_[thread] = {now, 0, std::nullopt};
  refresh_.insert(file);
  return true;
}

void RefusedOpens::end(std::int32_t thread) {
  std::optional<Refused> over;
  const MutexLock lock(mutex_);
  if (refused_.empty()) return;
  const auto found = refused_.find(thread);
  if (found == refused_.end()) return;
  over = std::move(found->second);
  refused_.erase(found);
}

bool RefusedOpens::take(FileId file) {
  const MutexLock lock(mutex_);
  return refresh_.erase(file) > 0;
}

bool RefusedOpens::repeats(std::int32_t thread) const {
  const MutexLock lock(mutex_);
  if (refused_.empty()) return false;
  const auto found = refused_.find(thread);
  return found != refused_.end() && found->second.holds < kHoldsMax &&
         clock_.now() - found->second.when < kRepeatMax;
}

void RefusedOpens::hold(std::int32_t thread, Held held) {
  std::optional<Held> over;
  const MutexLock lock(mutex_);
  const auto found = refused_.find(thread);
  if (found == refused_.end()) {
    over = std::move(held);
    return;
  }
  over = std::exchange(found->second.held, std::move(held));
  found->second.holds++;
}

std::optional<RefusedOpens::Held> RefusedOpens::held(std::int32_t thread, FileId file) {
  const MutexLock lock(mutex_);
  if (refused_.empty()) return std::nullopt;
  const auto found = refused_.find(thread);
  if (found == refused_.end() || !found->second.held || found->second.held->id != file)
    return std::nullopt;
  return std::exchange(found->second.held, std::nullopt);
}

}  // namespace stdchk::mount
