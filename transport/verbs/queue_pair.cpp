#include "transport/verbs/queue_pair.h"

#include <cerrno>

namespace stdchk::transport::verbs {

namespace {

constexpr std::uint32_t kInlineWanted = 220;

/// Bits of the attribute mask for RoCE. Old kernels set them for InfiniBand too, where no driver
/// accepts them.
constexpr int kOnlyRoce = 0x7 << 21;

/// Offers a vendor's extensions (ibv_query_ece(3)) to the peer, with the next request or answer.
/// Most devices have none.
void offer_extensions(rdma_cm_id& id, ibv_qp& qp) {
  ibv_ece mine{};
  if (::ibv_query_ece(&qp, &mine) == 0 && mine.vendor_id != 0) ::rdma_set_local_ece(&id, &mine);
}

/// Accepts the extensions that the peer has, too.
void take_extensions(rdma_cm_id& id, ibv_qp& qp) {
  ibv_ece mine{};
  ibv_ece theirs{};
  if (::ibv_query_ece(&qp, &mine) != 0 || mine.vendor_id == 0) return;
  const bool same = ::rdma_get_remote_ece(&id, &theirs) == 0 && theirs.vendor_id == mine.vendor_id;
  mine.options = same ? theirs.options : 0;
  ::ibv_set_ece(&qp, &mine);
}

}  // namespace

Status QueuePair::make(Device& device, ibv_cq& send_cq, bool withholds_access) {
  is_iwarp_ = device.is_iwarp();
  is_infiniband_ = device.limits().is_infiniband;
  withholds_access_ = withholds_access && !is_iwarp_;
  for (const std::uint32_t inline_bytes : {kInlineWanted, std::uint32_t{0}}) {
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = &send_cq;
    attributes.recv_cq = &device.receive_queue();
    attributes.srq = &device.srq();
    attributes.cap.max_send_wr = static_cast<std::uint32_t>(device.limits().send_depth);
    attributes.cap.max_send_sge = kPiecesMax;
    attributes.cap.max_inline_data = inline_bytes;
    attributes.sq_sig_all = 0;
    qp_ = ::ibv_create_qp(&device.pd(), &attributes);
    inline_bytes_ = attributes.cap.max_inline_data;
    if (qp_ == nullptr) continue;
    number_ = qp_->qp_num;
    return {};
  }
  return fail(Code::kSystem, "verbs.link ibv_create_qp", errno);
}

/// Over iWARP the kernel does the remaining steps when the connection is up.
Status QueuePair::prepare_request(rdma_cm_id& id) const {
  offer_extensions(id, *qp_);
  return is_iwarp_ ? move_to(IBV_QPS_INIT, id, nullptr) : Status{};
}

Status QueuePair::prepare_answer(rdma_cm_id& id, const Reads& reads) const {
  take_extensions(id, *qp_);
  STDCHK_TRY(bring_up(id, &reads));
  offer_extensions(id, *qp_);
  return {};
}

Status QueuePair::take_answer(rdma_cm_id& id) const {
  take_extensions(id, *qp_);
  return bring_up(id, nullptr);
}

Status QueuePair::bring_up(rdma_cm_id& id, const Reads* reads) const {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    STDCHK_TRY(move_to(state, id, reads));
  }
  return {};
}

/// Moves the queue pair to `state`, with what the connection manager knows of path and peer. Only
/// the access rights differ.
Status QueuePair::move_to(ibv_qp_state state, rdma_cm_id& id, const Reads* reads) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  if (::rdma_init_qp_attr(&id, &attributes, &mask) != 0) {
    return fail_errno("verbs.link rdma_init_qp_attr");
  }
  if (is_infiniband_) mask &= ~kOnlyRoce;
  if (mask == 0) return {};  // iWARP has no such step
  if (withholds_access_) attributes.qp_access_flags = 0;
  if (reads != nullptr) {
    attributes.max_dest_rd_atomic = reads->as_target;
    attributes.max_rd_atomic = reads->as_initiator;
  }
  if (const int result = ::ibv_modify_qp(qp_, &attributes, mask); result != 0) {
    return fail(Code::kSystem, "verbs.link ibv_modify_qp", result);
  }
  return {};
}

Status QueuePair::grant_access() const {
  if (!withholds_access_) return {};
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;  // its present state, which some drivers want to be named
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const int result = ::ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS);
  if (result != 0) return fail(Code::kSystem, "verbs.link ibv_modify_qp: access", result);
  return {};
}

void QueuePair::stop() const {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  ::ibv_modify_qp(qp_, &attributes, IBV_QP_STATE);
}

void QueuePair::destroy() {
  if (qp_ != nullptr) ::ibv_destroy_qp(qp_);
  qp_ = nullptr;
}

}  // namespace stdchk::transport::verbs
