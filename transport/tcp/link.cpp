#include "transport/tcp/link.h"

#include <utility>

#include "core/base/assert.h"
#include "transport/message_limit.h"
#include "transport/tcp/endpoint.h"
#include "transport/transfer_check.h"

namespace stdchk::transport::tcp {

TcpLink::TcpLink(TcpEndpoint& endpoint, std::uint64_t number, bool accepted, Time late_at)
    : endpoint_(endpoint),
      number_(number),
      accepted_(accepted),
      late_at_(late_at),
      transfers_(endpoint.clock(), endpoint.transfers()),
      clear_(endpoint.poller(), number),
      queue_(transfers_, clear_) {
  endpoint_.add(*this);
}

TcpLink::~TcpLink() {
  if (state_ == State::kOpen) pump();  // queued messages may still be delivered
  handler_ = nullptr;
  endpoint_.remove(*this);
  transfers_.finish_all({Code::kCancelled, 0, "link.destroyed"});
}

Status TcpLink::send(ByteSpan message) {
  if (message.size() > kMessageBytesMax) return fail(Code::kTooLarge, "tcp.send");
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.send");
  if (!queue_.add_message(message)) return fail(Code::kWouldBlock, "tcp.send");
  endpoint_.mark_ready(*this);
  return {};
}

Status TcpLink::start(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                      std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN(const std::size_t bytes, transfer_bytes(pieces, key, offset, kTransferBytesMax));
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.rma");
  const Transfer* const transfer = transfers_.start(is_write, Pieces(pieces), operation);
  if (transfer == nullptr) return fail(Code::kWouldBlock, "tcp.rma");
  FrameHeader header{.type = is_write ? FrameType::kWrite : FrameType::kRead,
                     .id = transfer->id,
                     .key = key.key,
                     .offset = key.base + offset};
  if (is_write) {
    queue_.add_content({.next = header, .pieces = transfer->pieces});
  } else {
    header.length = static_cast<std::uint32_t>(bytes);
    queue_.add_note(header);
  }
  endpoint_.mark_ready(*this);
  return {};
}

bool TcpLink::has_overdue(Time now) const {
  if (state_ != State::kOpen) return state_ != State::kClosed && now >= late_at_;
  return transfers_.has_overdue(now);
}

bool TcpLink::fence() {
  endpoint_.end(*this, {Code::kFenced, 0, "tcp.fence"});
  return true;
}

Status TcpLink::present(const RemoteKey& to, const Grant& grant) {
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.grant");
  queue_.add_grant({.type = FrameType::kGrant,
                    .length = GrantContent::kBytes,
                    .id = grant.id.value,
                    .key = to.key,
                    .offset = to.base + grant.offset},
                   {grant.length, grant.proof_low, grant.proof_high});
  endpoint_.mark_ready(*this);
  return {};
}

RemoteKey TcpLink::share_as(const MemoryRegion& region, bool writable,
                            std::shared_ptr<WriteCheck> check) {
  const auto& own = static_cast<const TcpRegion&>(region);
  STDCHK_ASSERT(&own.endpoint() == &endpoint_);
  return shared_.share(own, writable, std::move(check));
}

/// The region ends. A peer that uses the region now loses the link: the transfer cannot end well.
void TcpLink::forget(const TcpRegion& region) {
  shared_.forget(region);
  if (queue_.reads(region) || clear_.uses(region) || frame_.writes(region)) fail_link("tcp.region");
}

bool TcpLink::fail_link(const char* where) {
  endpoint_.end(*this, {Code::kPeerLost, 0, where});
  return false;
}

}  // namespace stdchk::transport::tcp
