#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "core/clock.h"
#include "core/messages/messages.h"
#include "manager/chunk_table.h"
#include "transport/rpc.h"

namespace stdchk::manager {

class Service;
struct File;

/// A Scrubber has every copy of every chunk checked by the benefactor that holds it, again and
/// again, so that what memory has changed is found while another copy is there. A wrong copy is
/// made again by the CopyPlanner.
///
/// Threads: the reactor's.
/// Limits: one request at each benefactor; the rate, for each benefactor; a pass begins an hour
///   after the one before, or when it is asked for.
/// Errors: what a benefactor does not answer is left to the next pass.
class Scrubber {
 public:
  explicit Scrubber(Service& service) : service_(service) {}
  void run();
  /// Begins a pass, unless one is under way.
  void start();
  /// A copy that did not match when it was read: it is checked first.
  void suspect(ChunkIndex chunk, const Extent& extent);
  /// All of a file's chunks on that benefactor.
  void suspect(const File& file, BenefactorId benefactor);
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

  Service& service_;
  std::map<BenefactorId, Lane> lanes_;
  ChunkIndex cursor_ = kNoChunk;
  bool running_ = false;
  bool begun_ = false;
  Time next_pass_{};
  msg::Scrub::Reply figures_;
};

}  // namespace stdchk::manager
