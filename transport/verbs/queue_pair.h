#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>

#include "core/base/result.h"
#include "transport/verbs/device.h"

namespace stdchk::transport::verbs {

/// A QueuePair is a reliable queue pair that this class brings up itself; librdmacm only transports
/// its number. With librdmacm's own way, the peer could access all registered memory as soon as the
/// connection is up.
///
/// Owns: the queue pair.
/// Not: withheld access over iWARP. There a queue pair gets its final rights before it is
///   connected. Drivers refuse to change them later (cxgb4), or never check them (siw).
class QueuePair {
 public:
  /// Limits of the one-sided reads that are under way at once.
  struct Reads {
    std::uint8_t as_target = 0;
    std::uint8_t as_initiator = 0;
  };

  QueuePair() = default;
  ~QueuePair() { destroy(); }
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  /// With `withholds_access`, the peer has no access until grant_access().
  Status make(Device& device, ibv_cq& send_cq, bool withholds_access);
  /// To be called before rdma_connect().
  Status prepare_request(rdma_cm_id& id) const;
  /// To be called before rdma_accept(). From then on the peer may send.
  Status prepare_answer(rdma_cm_id& id, const Reads& reads) const;
  /// To be called after the peer's answer, before rdma_establish().
  Status take_answer(rdma_cm_id& id) const;
  /// From now on the peer may read and write registered memory.
  Status grant_access() const;
  /// Ends all sending and receiving.
  void stop() const;
  void destroy();

  ibv_qp* get() const { return qp_; }
  /// 0 before make(); stays after destroy().
  std::uint32_t number() const { return number_; }
  /// Longest work request whose data are copied into it.
  std::size_t inline_bytes() const { return inline_bytes_; }

 private:
  /// `reads` are the agreed limits. With nullptr, those of the connection manager are used.
  Status bring_up(rdma_cm_id& id, const Reads* reads) const;
  Status move_to(ibv_qp_state state, rdma_cm_id& id, const Reads* reads) const;

  ibv_qp* qp_ = nullptr;
  std::uint32_t number_ = 0;
  std::size_t inline_bytes_ = 0;
  bool is_iwarp_ = false;
  bool is_infiniband_ = false;
  bool withholds_access_ = false;
};

}  // namespace stdchk::transport::verbs
