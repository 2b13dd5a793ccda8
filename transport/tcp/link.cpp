#include "transport/tcp/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/assert.h"
#include "core/base/limits.h"
#include "transport/message_limit.h"
#include "transport/tcp/endpoint.h"
#include "transport/transfer_check.h"

namespace stdchk::transport::tcp {
namespace {

constexpr std::uint64_t kPlaceMask = 0xFF;
constexpr unsigned kPlaceBits = 8;
static_assert(kTransfersMax <= kPlaceMask + 1);

}  // namespace

TcpRegion::TcpRegion(TcpEndpoint& endpoint, MutableByteSpan memory)
    : endpoint_(endpoint), memory_(memory) {
  endpoint_.add(*this);
}

TcpRegion::~TcpRegion() { endpoint_.remove(*this); }

TcpLink::TcpLink(TcpEndpoint& endpoint, std::uint64_t number, bool accepted, Time late_at)
    : endpoint_(endpoint), number_(number), accepted_(accepted), late_at_(late_at) {
  endpoint_.add(*this);
}

TcpLink::~TcpLink() {
  if (state_ == State::kOpen) pump();  // what was sent may still be delivered
  handler_ = nullptr;
  endpoint_.remove(*this);
  finish_all({Code::kCancelled, 0, "link.destroyed"});
}

Status TcpLink::send(ByteSpan message) {
  if (message.size() > kMessageBytesMax) return fail(Code::kTooLarge, "tcp.send");
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.send");
  if (messages_.size() >= kSendsMax || message_bytes_ + message.size() > kSendBytesMax) {
    return fail(Code::kWouldBlock, "tcp.send");
  }
  messages_.emplace_back(message.begin(), message.end());
  message_bytes_ += message.size();
  endpoint_.mark_ready(*this);
  return {};
}

Status TcpLink::start(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                      std::uint64_t offset, Operation& operation) {
  STDCHK_ASSIGN(const std::size_t bytes, transfer_bytes(pieces, key, offset, kTransferBytesMax));
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.rma");
  Transfer* const transfer = free_transfer();
  if (transfer == nullptr) return fail(Code::kWouldBlock, "tcp.rma");
  const auto place = static_cast<std::uint64_t>(transfer - transfers_.data());
  *transfer = {.operation = &operation,
               .is_write = is_write,
               .id = ++transfers_made_ << kPlaceBits | place,
               .started = endpoint_.clock().now(),
               .pieces = Pieces(pieces)};
  ++transfers_count_;
  endpoint_.transfer_started();
  if (is_write) {
    contents_.push_back({.next = {.type = FrameType::kWrite,
                                  .id = transfer->id,
                                  .key = key.key,
                                  .offset = key.base + offset},
                         .pieces = transfer->pieces});
  } else {
    notes_.push_back({.type = FrameType::kRead,
                      .length = static_cast<std::uint32_t>(bytes),
                      .id = transfer->id,
                      .key = key.key,
                      .offset = key.base + offset});
  }
  operation.started();
  endpoint_.mark_ready(*this);
  return {};
}

TcpLink::Transfer* TcpLink::free_transfer() {
  if (transfers_count_ >= kTransfersMax) return nullptr;
  // Reserved for good: frames that are being sent point into it.
  if (transfers_.capacity() == 0) transfers_.reserve(kTransfersMax);
  if (transfers_count_ == transfers_.size()) return &transfers_.emplace_back();
  const auto is_free = [](const Transfer& each) { return each.operation == nullptr; };
  return &*std::ranges::find_if(transfers_, is_free);
}

/// Null: the peer speaks of a transfer that does not wait for it.
TcpLink::Transfer* TcpLink::find_transfer(std::uint64_t id, bool is_write) {
  const std::size_t place = id & kPlaceMask;
  if (place >= transfers_.size()) return nullptr;
  Transfer& transfer = transfers_[place];
  const bool waits = transfer.operation != nullptr && transfer.id == id;
  return waits && transfer.is_write == is_write ? &transfer : nullptr;
}

/// The operation may destroy the link.
void TcpLink::finish(Transfer& transfer, Status status) {
  Operation* const operation = std::exchange(transfer.operation, nullptr);
  --transfers_count_;
  endpoint_.transfer_ended();
  operation->finish(status);
}

bool TcpLink::finish_all(const Error& why) {
  const Lifetime::Watch alive = lifetime_.watch();
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    if (transfers_[i].operation == nullptr) continue;
    finish(transfers_[i], fail(why));
    if (alive.expired()) return false;
  }
  return true;
}

bool TcpLink::any_late(Time now) const {
  if (state_ != State::kOpen) return state_ != State::kClosed && now >= late_at_;
  return transfers_count_ > 0 && std::ranges::any_of(transfers_, [&](const Transfer& each) {
           return each.operation != nullptr &&
                  now - std::max(each.started, moved_) >= limits::kRmaDeadline;
         });
}

bool TcpLink::fence() {
  endpoint_.end(*this, {Code::kFenced, 0, "tcp.fence"});
  return true;
}

Status TcpLink::present(const RemoteKey& to, const Grant& grant) {
  if (state_ != State::kOpen) return fail(Code::kPeerLost, "tcp.grant");
  presented_.push_back({{.type = FrameType::kGrant,
                         .length = GrantContent::kBytes,
                         .id = grant.id.value,
                         .key = to.key,
                         .offset = to.base + grant.offset},
                        GrantContent{grant.length, grant.proof_low, grant.proof_high}.encode()});
  endpoint_.mark_ready(*this);
  return {};
}

RemoteKey TcpLink::share(const MemoryRegion& region, Shared as) {
  const auto& own = static_cast<const TcpRegion&>(region);
  STDCHK_ASSERT(&own.endpoint() == &endpoint_);
  const std::uint64_t length = own.bytes().size();
  as.region = &own;
  for (const auto& [key, shared] : shared_) {
    if (shared == as) return {key, 0, length};
  }
  std::uint64_t key = 0;
  while (key == 0 || shared_.contains(key)) {
    fill_random(std::as_writable_bytes(std::span(&key, 1)));
  }
  shared_.emplace(key, std::move(as));
  return {key, 0, length};
}

/// The region ends. A peer that uses it now loses the link: half a transfer has no other end.
void TcpLink::forget(const TcpRegion& region) {
  std::erase_if(shared_, [&](const auto& each) { return each.second.region == &region; });
  const bool answers = std::ranges::any_of(
      contents_, [&](const Content& content) { return content.region == &region; });
  const auto is_of = [&](const ClearFrame& frame) { return frame.region == &region; };
  const bool in_clear =
      std::ranges::any_of(clear_in_, is_of) || std::ranges::any_of(clear_out_, is_of);
  if (answers || in_clear || in_region_ == &region || out_.region == &region) {
    endpoint_.end(*this, {Code::kPeerLost, 0, "tcp.region"});
  }
}

}  // namespace stdchk::transport::tcp
