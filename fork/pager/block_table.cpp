#include "fork/pager/block_table.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::pager {

BlockTable::BlockTable(std::uint64_t size_bytes)
    : states_((size_bytes + kBlockBytes - 1) / kBlockBytes, State::kAbsent) {
  STDCHK_ASSERT(size_bytes <= kImageBytesMax);
}

BlockTable::State BlockTable::request(std::uint64_t block, const Waiter& waiter) {
  STDCHK_ASSERT(block < states_.size());
  if (states_[block] != State::kPresent) waiters_.emplace(block, waiter);
  return states_[block];
}

BlockRange BlockTable::claim(std::uint64_t first, std::uint64_t count_max) {
  BlockRange range{first, 0};
  while (range.count < count_max && range.end() < states_.size() &&
         states_[range.end()] == State::kAbsent) {
    states_[range.end()] = State::kFetching;
    ++range.count;
  }
  fetching_ += range.count;
  return range;
}

void BlockTable::take_waiters(const BlockRange& range, std::vector<Waiter>& waiters) {
  if (waiters_.empty()) return;
  for (std::uint64_t block = range.first; block < range.end(); ++block) {
    const auto [from, to] = waiters_.equal_range(block);
    for (auto each = from; each != to; ++each) waiters.push_back(each->second);
    waiters_.erase(from, to);
  }
}

void BlockTable::filled(const BlockRange& range, std::vector<Waiter>& waiters) {
  STDCHK_ASSERT(range.end() <= states_.size());
  for (std::uint64_t block = range.first; block < range.end(); ++block) {
    STDCHK_ASSERT(states_[block] == State::kFetching);
    states_[block] = State::kPresent;
  }
  fetching_ -= range.count;
  present_ += range.count;
  if (range.count > 0) filled_.push_back(range);
  take_waiters(range, waiters);
}

void BlockTable::failed(const BlockRange& range, std::vector<Waiter>& waiters) {
  STDCHK_ASSERT(range.end() <= states_.size());
  for (std::uint64_t block = range.first; block < range.end(); ++block) {
    STDCHK_ASSERT(states_[block] == State::kFetching);
    states_[block] = State::kAbsent;
  }
  fetching_ -= range.count;
  take_waiters(range, waiters);
}

void BlockTable::forget(std::uint64_t clone) {
  std::erase_if(waiters_, [&](const auto& each) { return each.second.clone == clone; });
}

BlockRange BlockTable::evict_oldest() {
  if (filled_.empty()) return {};
  const BlockRange range = filled_.front();
  filled_.pop_front();
  std::fill_n(states_.begin() + static_cast<std::ptrdiff_t>(range.first), range.count,
              State::kAbsent);
  present_ -= range.count;
  return range;
}

void BlockTable::adopt(const BlockRange& present) {
  STDCHK_ASSERT(present.end() <= states_.size());
  if (present.count == 0) return;
  for (std::uint64_t block = present.first; block < present.end(); ++block) {
    STDCHK_ASSERT(states_[block] == State::kAbsent);
    states_[block] = State::kPresent;
  }
  present_ += present.count;
  filled_.push_back(present);
}

}  // namespace stdchk::pager
