#include "transport/ofi/tcp_connection.h"

#include <array>
#include <cstring>

#include "core/limits.h"
#include "transport/ofi/tcp_endpoint.h"
#include "transport/transfer_check.h"

namespace stdchk::transport::ofi {

namespace {

constexpr std::size_t kTransfersMax = 128;
constexpr std::size_t kSendsMax = 128;
constexpr std::size_t kSendBytesMax = 4 * limits::kMiB;

/// What a start function of the fabric answered. Anything but a full queue means a dead endpoint.
Status started(ssize_t result, const char* where) {
  if (result == 0) return {};
  if (result == -FI_EAGAIN) return fail(Code::kWouldBlock, where);
  return fail(Code::kPeerLost, where, static_cast<std::int32_t>(-result));
}

}  // namespace

Status Connection::post_receive(Work& work) {
  return started(fi_recv(ep, work.buffer.get(), work.buffer_bytes, nullptr, FI_ADDR_UNSPEC, &work),
                 "tcp.receive");
}

Status Connection::send(ByteSpan message) {
  if (message.size() > endpoint.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "tcp.send");
  }
  if (state != State::kConnected) return fail(Code::kPeerLost, "tcp.send");
  if (sends >= kSendsMax || send_bytes + message.size() > kSendBytesMax) {
    return fail(Code::kWouldBlock, "tcp.send");
  }
  if (idle_sends.empty()) {
    works.push_back(std::make_unique<Work>());
    works.back()->connection = this;
    works.back()->kind = Work::Kind::kSend;
    idle_sends.push_back(works.back().get());
  }
  Work& work = *idle_sends.back();
  // Not make_unique: it would write zeros into what is overwritten at once.
  work.buffer.reset(new std::byte[message.size()]);
  work.buffer_bytes = message.size();
  if (!message.empty()) std::memcpy(work.buffer.get(), message.data(), message.size());
  STDCHK_TRY(started(fi_send(ep, work.buffer.get(), message.size(), nullptr, FI_ADDR_UNSPEC, &work),
                     "tcp.send"));
  idle_sends.pop_back();
  ++sends;
  send_bytes += message.size();
  return {};
}

Status Connection::transfer(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                            std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN(const std::size_t total,
                transfer_bytes(pieces, key, offset, endpoint.capabilities().rma_bytes_max));
  std::array<iovec, kPiecesMax> local;
  std::array<void*, kPiecesMax> descriptors;
  std::size_t count = 0;
  for (const LocalPiece& piece : pieces) {
    if (piece.length == 0) continue;
    local[count] = {piece.data, piece.length};
    descriptors[count++] = static_cast<const TcpRegion*>(piece.region)->descriptor();
  }
  if (state != State::kConnected) return fail(Code::kPeerLost, "tcp.rma");
  if (transfers >= kTransfersMax) return fail(Code::kWouldBlock, "tcp.rma");
  if (idle_transfers.empty()) {
    works.push_back(std::make_unique<Work>());
    works.back()->connection = this;
    works.back()->kind = Work::Kind::kTransfer;
    idle_transfers.push_back(works.back().get());
  }
  Work& work = *idle_transfers.back();
  const fi_rma_iov remote{.addr = key.base + offset, .len = total, .key = key.key};
  const fi_msg_rma message{.msg_iov = local.data(),
                           .desc = descriptors.data(),
                           .iov_count = count,
                           .addr = FI_ADDR_UNSPEC,
                           .rma_iov = &remote,
                           .rma_iov_count = 1,
                           .context = &work,
                           .data = 0};
  STDCHK_TRY(started(write ? fi_writemsg(ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                           : fi_readmsg(ep, &message, FI_COMPLETION),
                     "tcp.rma"));
  idle_transfers.pop_back();
  ++transfers;
  endpoint.transfer_started();
  work.operation = &operation;
  work.started = endpoint.clock().now();
  operation.started();
  return {};
}

void Connection::retire(Work& work) {
  if (work.kind == Work::Kind::kSend) {
    send_bytes -= work.buffer_bytes;
    --sends;
    work.buffer.reset();
    idle_sends.push_back(&work);
  } else if (work.kind == Work::Kind::kTransfer) {
    work.operation = nullptr;
    --transfers;
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
    operation->finish(fail(code, "tcp.rma"));
  }
}

TcpLink::~TcpLink() {
  connection_.link = nullptr;
  connection_.handler = nullptr;
  connection_.endpoint.release(connection_);
}

bool TcpLink::fence() {
  connection_.endpoint.fence(connection_);
  return true;
}

}  // namespace stdchk::transport::ofi
