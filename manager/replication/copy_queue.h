#pragma once

#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "manager/replication/copy_traffic.h"
#include "manager/state/chunk_table.h"

namespace stdchk::manager {

/// A CopyQueue has the chunks that lack copies, the most exposed first.
///
/// Threads: one.
class CopyQueue {
 public:
  using Rank = CopyTraffic::Rank;
  using Entry = std::pair<Rank, ChunkIndex>;
  using Order = std::set<Entry>;

  /// Iterators stay valid until their own entry changes.
  const Order& in_order() const { return order_; }
  bool empty() const { return order_.empty(); }
  bool is_queued(ChunkIndex chunk) const { return ranks_.contains(chunk); }
  /// Returns the chunk's rank; nothing when the chunk lacks no copy.
  std::optional<Rank> rank(ChunkIndex chunk) const {
    const auto found = ranks_.find(chunk);
    return found == ranks_.end() ? std::nullopt : std::optional<Rank>(found->second);
  }
  /// Adds the chunk with that rank, or moves it there. Without a rank it leaves the queue.
  void set(ChunkIndex chunk, std::optional<Rank> next) {
    const std::optional<Rank> now = rank(chunk);
    if (now == next) return;
    if (now) {
      order_.erase({*now, chunk});
      ranks_.erase(chunk);
    }
    if (!next) return;
    order_.emplace(*next, chunk);
    ranks_[chunk] = *next;
  }

 private:
  Order order_;
  std::unordered_map<ChunkIndex, Rank> ranks_;
};

}  // namespace stdchk::manager
