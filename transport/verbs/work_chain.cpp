#include "transport/verbs/work_chain.h"

#include <algorithm>

#include "core/base/limits.h"
#include "transport/verbs/region.h"

namespace stdchk::transport::verbs {
namespace {

constexpr std::size_t kChainMax = 16;
/// Bytes after which a proof, or a signal, is added.
constexpr std::size_t kUnprovenMax = 512 * limits::kKiB;

}  // namespace

WorkChain::Request& WorkChain::add(ibv_wr_opcode opcode, const SendQueue::Entry& entry) {
  Request& request = chain_.emplace_back();
  request.work.opcode = opcode;
  request.work.wr_id = std::uint64_t{owner_} << 32 | queue_.push(entry);
  return request;
}

void WorkChain::add_part(bool is_write, const TransferPart& part, std::uint64_t base,
                         std::uint32_t key, Operation* operation) {
  Request& request = add(is_write ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                         {.operation = operation, .started = clock_.now()});
  for (std::size_t i = 0; i < part.count; ++i) {
    const LocalPiece& piece = part.pieces[i];
    request.pieces[i] = {.addr = reinterpret_cast<std::uint64_t>(piece.data),
                         .length = static_cast<std::uint32_t>(piece.length),
                         .lkey = static_cast<const VerbsRegion*>(piece.region)->lkey(piece.data)};
  }
  request.work.num_sge = static_cast<int>(part.count);
  request.work.wr.rdma.remote_addr = base + part.offset;
  request.work.wr.rdma.rkey = key;
  unproven_bytes_ += part.bytes;
  if (is_write) {
    if (part.bytes <= queue_pair_.inline_bytes()) request.work.send_flags |= IBV_SEND_INLINE;
    proof_key_ = key;
    proof_address_ = base + part.offset;
    if (unproven_bytes_ >= kUnprovenMax) add_proof();
  } else {
    proof_address_ = 0;  // the read also proves the writes before it
    if (unproven_bytes_ < kUnprovenMax) return;
    request.work.send_flags |= IBV_SEND_SIGNALED;
    unproven_bytes_ = 0;
  }
}

/// Reads one byte of the memory that was written last.
void WorkChain::add_proof() {
  Request& request = add(IBV_WR_RDMA_READ, {.started = clock_.now()});
  request.pieces[0] = {
      .addr = reinterpret_cast<std::uint64_t>(scratch_.data), .length = 1, .lkey = scratch_.lkey};
  request.work.num_sge = 1;
  request.work.wr.rdma.remote_addr = proof_address_;
  request.work.wr.rdma.rkey = proof_key_;
  request.work.send_flags |= IBV_SEND_SIGNALED;
  proof_address_ = 0;
  unproven_bytes_ = 0;
}

void WorkChain::add_message(Buffer& buffer, std::size_t bytes) {
  Request& request = add(IBV_WR_SEND, {.buffer = &buffer, .started = clock_.now()});
  request.pieces[0] = {.addr = reinterpret_cast<std::uint64_t>(buffer.data),
                       .length = static_cast<std::uint32_t>(bytes),
                       .lkey = buffer.lkey};
  request.work.num_sge = 1;
  if (bytes <= queue_pair_.inline_bytes()) request.work.send_flags |= IBV_SEND_INLINE;
}

bool WorkChain::should_post() const { return posted_ == 0 || chain_.size() >= kChainMax; }

Status WorkChain::post() {
  if (chain_.empty()) return {};
  if (proof_address_ != 0) add_proof();
  unproven_bytes_ = 0;
  chain_.back().work.send_flags |= IBV_SEND_SIGNALED;
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    chain_[i].work.sg_list = chain_[i].pieces.data();
    chain_[i].work.next = i + 1 < chain_.size() ? &chain_[i + 1].work : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const int result = ::ibv_post_send(queue_pair_.get(), &chain_.front().work, &bad);
  posted_ += chain_.size();
  chain_.clear();
  if (result != 0) return fail(Code::kPeerLost, "verbs.link ibv_post_send", result);
  return {};
}

std::size_t WorkChain::count_through(std::uint64_t number) {
  moved_ = clock_.now();
  const std::size_t count = queue_.count_through(static_cast<std::uint32_t>(number));
  posted_ -= count;
  return count;
}

void WorkChain::forget_posted() {
  chain_.clear();
  posted_ = 0;
}

bool WorkChain::is_late(Time now) const {
  if (queue_.empty()) return false;
  return now - std::max(queue_.oldest().started, moved_) >= limits::kRmaDeadline;
}

}  // namespace stdchk::transport::verbs
