#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/base/lifetime.h"
#include "core/base/result.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/pieces.h"
#include "transport/transport.h"

namespace stdchk::transport::tcp {

/// A Transfer is one write or read that this end of a link has started.
struct Transfer {
  Operation* operation = nullptr;  ///< null: the place in the table is free
  bool is_write = false;
  bool sent = false;     ///< the socket has the whole content of the write
  std::uint64_t id = 0;  ///< its low byte is the transfer's place in the table
  Time started{};
  Pieces pieces;               ///< of a read: memory without its bytes yet
  std::uint64_t received = 0;  ///< bytes of a read
};

/// A TransferTable has the transfers of one link that are in flight, and knows which are late.
///
/// Invariant: each operation in the table finishes once, by finish() or finish_all().
/// Limits: kTransfersMax transfers. A Transfer keeps its address until it finishes.
class TransferTable {
 public:
  /// `endpoint_count` is the number of transfers of all links of the endpoint.
  TransferTable(Clock& clock, std::size_t& endpoint_count)
      : clock_(clock), endpoint_count_(endpoint_count) {}

  /// Returns null when the table is full.
  Transfer* start(bool is_write, const Pieces& pieces, Operation& operation);
  /// Returns null when the table has no such transfer: the peer names a transfer that is not in
  /// flight.
  Transfer* find(std::uint64_t id, bool is_write);
  /// The operation may destroy the link, and so this table.
  void finish(Transfer& transfer, Status status);
  /// Returns false when an operation has destroyed this table.
  bool finish_all(const Error& why);

  /// A part of a transfer has been sent or received. A long transfer is not late while parts move.
  void part_moved() { moved_ = clock_.now(); }
  /// Like part_moved(). `write` is the write whose last part was sent, or 0.
  void part_sent(std::uint64_t write);
  bool has_overdue(Time now) const;

 private:
  Transfer* free_place();

  Clock& clock_;
  std::size_t& endpoint_count_;
  std::vector<Transfer> places_;
  std::size_t count_ = 0;
  std::uint64_t started_count_ = 0;
  Time moved_{};  ///< when a part was moved last
  Lifetime lifetime_;
};

}  // namespace stdchk::transport::tcp
