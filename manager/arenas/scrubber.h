#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/messages/messages.h"
#include "manager/pool/pool.h"
#include "manager/state/chunk_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

/// A Scrubber has every copy of every chunk checked by its benefactor, in endless passes. So it
/// finds damaged memory while another copy still exists. The CopyPlanner replaces a wrong copy.
///
/// Threads: the reactor's.
/// Limits: one request at a time and a maximum rate for each benefactor. A pass begins an hour
/// after the previous one ended, or on request.
/// Errors: what a benefactor does not answer is left to the next pass.
class Scrubber {
 public:
  /// Calls `on_wrong` for a copy whose bytes are not the chunk's.
  Scrubber(Pool& pool, std::function<void(ChunkIndex chunk, const Extent& copy)> on_wrong)
      : pool_(pool), on_wrong_(std::move(on_wrong)) {}
  void run();
  /// Begins a pass, unless one is under way.
  void start();
  /// Queues a suspected copy in front of all others.
  void queue_suspected(ChunkIndex chunk, const Extent& extent);
  /// Queues a file's chunks on that benefactor in front of all others: one of them is suspected.
  void queue_suspected(const File& file, BenefactorId benefactor);
  /// Lacks the number of repaired chunks, which the CopyPlanner knows.
  msg::Scrub::Reply figures() const;

 private:
  struct Item {
    ChunkIndex chunk = kNoChunk;
    msg::CheckExtents::Checked checked;
  };
  struct Lane {
    std::deque<Item> waiting;
    std::uint64_t waiting_bytes = 0;
    bool in_flight = false;
    Time next{};
  };

  std::uint64_t rate() const;
  void fill();
  void push(ChunkIndex chunk, const Extent& extent, bool first);
  void send(BenefactorId benefactor, Lane& lane);
  void checked(BenefactorId benefactor, const std::vector<Item>& items, const rpc::Answer& answer);
  void found_wrong(BenefactorId benefactor, const Item& item);

  Pool& pool_;
  const std::function<void(ChunkIndex, const Extent&)> on_wrong_;
  std::map<BenefactorId, Lane> lanes_;
  ChunkIndex cursor_ = kNoChunk;
  bool running_ = false;
  bool begun_ = false;
  Time next_pass_{};
  msg::Scrub::Reply figures_;
};

}  // namespace stdchk::manager
