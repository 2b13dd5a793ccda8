#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "transport/transfer_parts.h"
#include "transport/verbs/fragment_buffers.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/send_queue.h"

namespace stdchk::transport::verbs {

/// A WorkChain collects the work requests of one queue pair, posts them as one chain, and remembers
/// them until they end.
///
/// The last request of a chain is signalled; in a chain with many bytes, so are others. After
/// writes comes a read of one byte, the proof: the target's device answers it after the writes are
/// in its memory. The writes complete with the proof.
///
/// | a request is | its operation and buffer belong to                  |
/// |--------------|-----------------------------------------------------|
/// | collected    | the chain                                           |
/// | posted       | the device, until a completion that end() has named |
///
/// Not: aware of links. The caller decides when to post, and what a failure means.
class WorkChain {
 public:
  /// `owner` is the upper half of the number of each request, by which a completion finds its
  /// chain. `scratch` takes the byte that proves read.
  WorkChain(QueuePair& queue_pair, Clock& clock, std::uint32_t owner, const Buffer& scratch,
            std::size_t capacity)
      : queue_pair_(queue_pair),
        clock_(clock),
        owner_(owner),
        scratch_(scratch),
        queue_(capacity) {}

  /// Adds a part of a transfer. `operation` finishes with it; null: a later part finishes it.
  void add_part(bool is_write, const TransferPart& part, std::uint64_t base, std::uint32_t key,
                Operation* operation);
  /// Adds the first `bytes` of `buffer` as a message to the peer.
  void add_message(Buffer& buffer, std::size_t bytes);

  /// Requests that can still be added.
  std::size_t room() const { return queue_.room(); }
  bool empty() const { return queue_.empty(); }
  /// True when the device has no request, or when enough are collected.
  bool should_post() const;
  /// Posts the collected requests. kPeerLost: the device does not take them.
  Status post();

  /// Returns how many requests a completion of request `number` ends.
  std::size_t count_through(std::uint64_t number);
  /// Takes the oldest request out.
  SendQueue::Entry pop() { return queue_.pop(); }
  /// Forgets all collected requests, and that requests are posted: the queue pair has ended.
  void forget_posted();
  /// True when requests wait, and none has ended for limits::kRmaDeadline.
  bool is_late(Time now) const;

 private:
  struct Request {
    ibv_send_wr work{};
    std::array<ibv_sge, kPiecesMax> pieces{};
  };
  Request& add(ibv_wr_opcode opcode, const SendQueue::Entry& entry);
  void add_proof();

  QueuePair& queue_pair_;
  Clock& clock_;
  const std::uint32_t owner_;
  const Buffer& scratch_;
  SendQueue queue_;             ///< collected and posted requests
  std::vector<Request> chain_;  ///< collected, not posted yet
  std::size_t posted_ = 0;      ///< entries of `queue_` that the device has
  std::size_t unproven_bytes_ = 0;
  std::uint32_t proof_key_ = 0;
  std::uint64_t proof_address_ = 0;  ///< 0: no write waits for a proof
  Time moved_{};  ///< when a request ended last; a long queue that moves is not late
};

}  // namespace stdchk::transport::verbs
