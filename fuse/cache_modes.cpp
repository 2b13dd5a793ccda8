#include "fuse/cache_modes.h"

#include "core/base/mutex.h"
#include "core/policy/image_name.h"

namespace stdchk::mount {

CacheModes::Key CacheModes::key(FileId directory, std::string_view name) {
  auto image = parse_image_name(name);
  return {directory, image ? image->application : std::string{}};
}

bool CacheModes::choose_cached(FileId directory, std::string_view name) {
  Key wanted = key(directory, name);
  const MutexLock lock(mutex_);
  auto found = series_.find(wanted);
  if (found == series_.end() || !found->second.small) return false;
  if (++found->second.cached_opens > kCachedOpensMax) {
    found->second.cached_opens = 0;
    return false;
  }
  return true;
}

void CacheModes::record_calls(FileId directory, std::string_view name, std::uint64_t calls,
                              std::uint64_t bytes) {
  if (calls < kCallsMin) return;
  Key wanted = key(directory, name);
  const MutexLock lock(mutex_);
  if (series_.size() >= kSeriesMax) series_.clear();
  series_[wanted].small = bytes / calls < kSmallBytes;
}

}  // namespace stdchk::mount
