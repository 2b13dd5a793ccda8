#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

#include "core/result.h"
#include "transport/verbs/device.h"

namespace stdchk::transport::verbs {

/// A QueuePair is a reliable queue pair that is made and brought up here. librdmacm only carries
/// its number: by itself it would give the peer access to all registered memory with the
/// connection.
///
/// Owns: the queue pair.
/// Not: access on hold over iWARP, where a queue pair has its rights before it is connected, for
///   good: drivers refuse to change them later (cxgb4) or never look at them (siw).
class QueuePair {
 public:
  /// One-sided reads that are under way at once.
  struct Reads {
    std::uint8_t as_target = 0;
    std::uint8_t as_initiator = 0;
  };

  QueuePair() = default;
  ~QueuePair() { destroy(); }
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// `withholds_access`: the peer has none until grant_access().
  Status make(Device& device, ibv_cq& send_cq, bool withholds_access);
  /// Before rdma_connect().
  Status prepare_request(rdma_cm_id& id) const;
  /// Before rdma_accept(): from then on the peer may send.
  Status prepare_answer(rdma_cm_id& id, const Reads& reads) const;
  /// When the peer has answered, before rdma_establish().
  Status take_answer(rdma_cm_id& id) const;
  /// From now on the peer may read and write registered memory.
  Status grant_access() const;
  /// Nothing is sent or received any more.
  void stop() const;
  void destroy();

  ibv_qp* get() const { return qp_; }
  std::uint32_t number() const { return qp_->qp_num; }
  std::size_t inline_bytes() const { return inline_bytes_; }  ///< of one work request

 private:
  /// `reads`: those that were agreed on; without, the connection manager knows them.
  Status bring_up(rdma_cm_id& id, const Reads* reads) const;
  Status move_to(ibv_qp_state state, rdma_cm_id& id, const Reads* reads) const;

  ibv_qp* qp_ = nullptr;
  std::size_t inline_bytes_ = 0;
  bool is_iwarp_ = false;
  bool is_infiniband_ = false;
  bool withholds_access_ = false;
};

}  // namespace stdchk::transport::verbs
