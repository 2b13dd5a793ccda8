#include "manager/replication/lost_images.h"

#include "core/base/log.h"

namespace stdchk::manager {

void LostImages::run() {
  if (std::exchange(due_, false)) find();
  for (std::size_t named = 0; named < kNamedMax && !unnamed_.empty(); ++named) {
    name(unnamed_.extract(unnamed_.begin()).value());
  }
}

void LostImages::find() {
  std::set<Key> lost;
  for (const Key& key : pool_.state().commits().undrained()) {
    if (lost_bytes_(pool_.state().file(key.second)->newest) == 0) continue;
    lost.insert(key);
    if (lost_.count(key) == 0) unnamed_.insert(key);
  }
  lost_ = std::move(lost);
}

/// Logs the image, unless it was removed, replaced, drained or made whole in the meantime.
void LostImages::name(const Key& key) const {
  const State& state = pool_.state();
  if (state.commits().undrained().count(key) == 0) return;
  const File& file = *state.file(key.second);
  const std::uint64_t bytes = lost_bytes_(file.newest);
  if (bytes == 0) return;
  log::error("image {}: {} of its {} bytes have no copy any more and were not drained",
             state.path(file), bytes, file.newest.size_bytes);
}

}  // namespace stdchk::manager
