#include "transport/ofi/connection.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/limits.h"
#include "transport/ofi/endpoint.h"
#include "transport/transfer_check.h"

namespace stdchk::transport::ofi {

namespace {

/// Sends in flight of a link; the peer posts this number of receives.
constexpr std::size_t kSendsPostedMax = 8;
constexpr std::size_t kSendBytesMax = 4 * limits::kMiB;
constexpr std::size_t kSmallest = 4 * limits::kKiB;  // the smallest message buffer
constexpr std::size_t kKeptMax = 16 * limits::kKiB;  // the largest buffer that is kept for reuse

/// Converts the result of a function of libfabric that starts work. Any error but a full queue
/// means that the endpoint is dead.
Status started(ssize_t result, const char* where) {
  if (result == 0) return {};
  if (result == -FI_EAGAIN) return fail(Code::kWouldBlock, where);
  return fail(Code::kPeerLost, where, static_cast<std::int32_t>(-result));
}

}  // namespace

Result<MessageBuffer> MessageBuffer::make(fid_domain* domain, std::size_t bytes) {
  MessageBuffer buffer;
  // Does not use make_unique(), which would touch pages that a message may never need.
  buffer.memory_.reset(new std::byte[bytes]);
  buffer.bytes_ = bytes;
  if (domain == nullptr || bytes == 0) return buffer;
  fid_mr* mr = nullptr;
  const int result =
      fi_mr_reg(domain, buffer.data(), bytes, FI_SEND | FI_RECV | FI_READ, 0, 0, 0, &mr, nullptr);
  if (result != 0) return fail(Code::kSystem, "ofi.message fi_mr_reg", -result);
  buffer.mr_.reset(mr);
  return buffer;
}

Status Connection::post_receive(Work& work) {
  return started(fi_recv(ep, work.buffer.data(), work.buffer.size(), work.buffer.descriptor(),
                         FI_ADDR_UNSPEC, &work),
                 "ofi.receive");
}

Status Connection::send(ByteSpan message) {
  if (message.size() > endpoint.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "ofi.send");
  }
  if (state != State::kConnected) return fail(Code::kPeerLost, "ofi.send");
  if (sends >= kSendsMax || send_bytes + message.size() > kSendBytesMax) {
    return fail(Code::kWouldBlock, "ofi.send");
  }
  if (idle_sends.empty()) {
    works.push_back(std::make_unique<Work>());
    works.back()->connection = this;
    works.back()->kind = Work::Kind::kSend;
    idle_sends.push_back(works.back().get());
  }
  Work& work = *idle_sends.back();
  if (work.buffer.size() < message.size()) {
    STDCHK_ASSIGN(work.buffer, endpoint.fabric().make_buffer(std::max(message.size(), kSmallest)));
  }
  if (!message.empty()) std::memcpy(work.buffer.data(), message.data(), message.size());
  work.bytes = message.size();
  if (sends - waiting_sends.size() >= kSendsPostedMax) {
    waiting_sends.push_back(&work);
  } else {
    STDCHK_TRY(post_send(work));
  }
  idle_sends.pop_back();
  ++sends;
  send_bytes += message.size();
  return {};
}

Status Connection::post_send(Work& work) {
  return started(
      fi_send(ep, work.buffer.data(), work.bytes, work.buffer.descriptor(), FI_ADDR_UNSPEC, &work),
      "ofi.send");
}

Status Connection::transfer(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                            std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN([[maybe_unused]] const std::size_t bytes,
                transfer_bytes(pieces, key, offset, endpoint.capabilities().rma_bytes_max));
  split_transfer(pieces, offset, {.bytes = endpoint.fabric().request_bytes_max()}, parts_);
  const std::size_t wanted = parts_.size() + (write ? 1 : 0);
  if (state != State::kConnected) return fail(Code::kPeerLost, "ofi.rma");
  if (transfers >= kTransfersMax || requests + wanted > kRequestsMax) {
    return fail(Code::kWouldBlock, "ofi.rma");
  }
  if (idle_transfers.empty()) {
    works.push_back(std::make_unique<Work>());
    works.back()->connection = this;
    works.back()->kind = Work::Kind::kTransfer;
    idle_transfers.push_back(works.back().get());
  }
  Work& work = *idle_transfers.back();
  work.requests = work.completions_wanted = wanted;
  STDCHK_TRY(start_requests(write, key, work));
  idle_transfers.pop_back();
  ++transfers;
  requests += wanted;
  endpoint.transfer_started();
  work.operation = &operation;
  work.started = endpoint.clock().now();
  operation.started();
  return {};
}

/// Posts the requests of all parts. Behind the parts of a write follows a read of one byte, which
/// proves delivery. A started transfer always ends, if necessary with its link. Queues have room
/// for all transfers in flight, so a full queue means a dead endpoint.
Status Connection::start_requests(bool write, const RemoteKey& key, Work& work) {
  const auto failed = [this](bool is_first, ssize_t result) -> Status {
    if (is_first) return started(result, "ofi.rma");
    endpoint.fail_later(*this, Code::kPeerLost, "ofi.rma");
    return {};
  };
  for (const TransferPart& part : parts_) {
    const ssize_t result = start_part(write, part, key, work);
    if (result != 0) return failed(&part == &parts_.front(), result);
  }
  if (work.requests == parts_.size()) return {};
  const MessageBuffer& scratch = endpoint.scratch();
  const ssize_t result = fi_read(ep, scratch.data(), 1, scratch.descriptor(), FI_ADDR_UNSPEC,
                                 key.base + parts_.back().offset, key.key, &work);
  return result == 0 ? Status{} : failed(false, result);
}

ssize_t Connection::start_part(bool write, const TransferPart& part, const RemoteKey& key,
                               Work& work) {
  std::array<iovec, kPiecesMax> local;
  std::array<void*, kPiecesMax> descriptors;
  for (std::size_t i = 0; i < part.count; ++i) {
    local[i] = {part.pieces[i].data, part.pieces[i].length};
    descriptors[i] = static_cast<const OfiRegion*>(part.pieces[i].region)->descriptor();
  }
  const fi_rma_iov remote{.addr = key.base + part.offset, .len = part.bytes, .key = key.key};
  const fi_msg_rma message{.msg_iov = local.data(),
                           .desc = descriptors.data(),
                           .iov_count = part.count,
                           .addr = FI_ADDR_UNSPEC,
                           .rma_iov = &remote,
                           .rma_iov_count = 1,
                           .context = &work,
                           .data = 0};
  if (!write) return fi_readmsg(ep, &message, FI_COMPLETION);
  return fi_writemsg(ep, &message, FI_COMPLETION);
}

void Connection::retire(Work& work) {
  if (work.kind == Work::Kind::kSend) {
    send_bytes -= work.bytes;
    --sends;
    if (work.buffer.descriptor() == nullptr || work.buffer.size() > kKeptMax) work.buffer = {};
    idle_sends.push_back(&work);
    if (waiting_sends.empty()) return;
    Work& next = *waiting_sends.front();
    waiting_sends.pop_front();
    if (!post_send(next).has_value()) endpoint.fail_later(*this, Code::kPeerLost, "ofi.send");
  } else if (work.kind == Work::Kind::kTransfer) {
    work.operation = nullptr;
    --transfers;
    requests -= work.requests;
    endpoint.transfer_ended();
    idle_transfers.push_back(&work);
  }
}

void Connection::close_fabric() {
  if (ep == nullptr) return;
  fi_close(&ep->fid);
  ep = nullptr;
  if (transmit != nullptr) fi_close(&transmit->fid);
  transmit = nullptr;
}

void Connection::finish_transfers(Code code) {
  for (const auto& work : works) {
    Operation* const operation = work->operation;
    if (operation == nullptr) continue;
    work->operation = nullptr;
    --transfers;
    endpoint.transfer_ended();
    operation->finish(fail(code, "ofi.rma"));
  }
}

}  // namespace stdchk::transport::ofi
