#include "transport/mem/link.h"

#include <algorithm>
#include <cstring>

#include "core/base/mutex.h"
#include "transport/mem/endpoint.h"

namespace stdchk::transport::mem {

namespace {

/// The most operations and messages that one poll() handles for a link, so that every link gets its
/// turn.
constexpr std::size_t kBurst = 64;

bool inside(std::uint64_t offset, std::uint64_t length, std::uint64_t total) {
  return offset <= total && length <= total - offset;
}

}  // namespace

LinkCore::LinkCore(MemEndpoint& endpoint, std::shared_ptr<Wire> wire, std::size_t side,
                   Time connect_by)
    : endpoint_(endpoint),
      wire_(std::move(wire)),
      side_(side),
      connect_by_(connect_by),
      announced_(side == 1) {}

bool LinkCore::connected() const {
  if (!announced_ || closed_) return false;
  const MutexLock lock(endpoint_.fabric().mutex);
  return wire_->state == WireState::kConnected;
}

std::optional<Time> LinkCore::connect_by() const {
  if (announced_ || closed_) return std::nullopt;
  return connect_by_;
}

Status LinkCore::send(ByteSpan message) {
  if (message.size() > endpoint_.capabilities().message_bytes_max) {
    return fail(Code::kTooLarge, "mem.send");
  }
  if (!announced_ || closed_) return fail(Code::kPeerLost, "mem.send");
  const MutexLock lock(endpoint_.fabric().mutex);
  if (wire_->state != WireState::kConnected) return fail(Code::kPeerLost, "mem.send");
  auto& inbox = other().inbox;
  if (inbox.size() >= kMessagesQueuedMax) return fail(Code::kWouldBlock, "mem.send");
  inbox.emplace_back(message.begin(), message.end());
  other().port->signal();
  return {};
}

Status LinkCore::check(std::span<const LocalPiece> pieces) const {
  if (pieces.empty() || pieces.size() > kPiecesMax) return fail(Code::kInvalidArgument, "mem.rma");
  std::size_t total = 0;
  for (const LocalPiece& piece : pieces) {
    if (piece.region == nullptr) return fail(Code::kInvalidArgument, "mem.rma");
    const MutableByteSpan memory = piece.region->bytes();
    const auto offset = static_cast<std::uint64_t>(piece.data - memory.data());
    if (piece.data < memory.data() || !inside(offset, piece.length, memory.size())) {
      return fail(Code::kInvalidArgument, "mem.rma");
    }
    total += piece.length;
  }
  if (total > endpoint_.capabilities().rma_bytes_max) return fail(Code::kTooLarge, "mem.rma");
  return {};
}

Status LinkCore::start(bool write, std::span<const LocalPiece> pieces, const RemoteKey& key,
                       std::uint64_t offset, Operation& operation) {
  STDCHK_TRY(check(pieces));
  if (!connected()) return fail(Code::kPeerLost, "mem.rma");
  if (operations_.size() >= kOperationsQueuedMax) return fail(Code::kWouldBlock, "mem.rma");
  Pending pending{.write = write, .key = key, .offset = offset, .operation = &operation};
  for (const LocalPiece& piece : pieces) {
    pending.pieces[pending.piece_count++] = piece;
    pending.bytes += piece.length;
  }
  operation.started();
  operations_.push_back(pending);
  return {};
}

bool LinkCore::fence() {
  fenced_here_ = true;
  const MutexLock lock(endpoint_.fabric().mutex);
  // Transfers hold the same lock: none is half done now, and none can begin later.
  mine().fenced = true;
  mine().inbox.clear();
  wire_->state = WireState::kClosed;
  other().port->signal();
  mine().port->signal();
  return true;
}

void LinkCore::grant_access() {
  const MutexLock lock(endpoint_.fabric().mutex);
  mine().grants_access = true;
}

void LinkCore::destroy() {
  // The wire is closed, so operations that complete() starts from now on are refused.
  link_ = nullptr;
  handler_ = nullptr;
  closed_ = true;
  {
    const MutexLock lock(endpoint_.fabric().mutex);
    wire_->state = WireState::kClosed;
    mine().inbox.clear();
    other().port->signal();
  }
  finish_all(Code::kCancelled);
}

void LinkCore::finish_all(Code code) {
  while (!operations_.empty()) {
    Operation* const operation = operations_.front().operation;
    operations_.pop_front();
    operation->finish(fail(code, "mem.rma"));
  }
}

Status LinkCore::transfer(const Pending& pending) {
  const MutexLock lock(endpoint_.fabric().mutex);
  if (wire_->state != WireState::kConnected || other().fenced) {
    return fail(Code::kPeerLost, "mem.rma");
  }
  if (other().port->withholds_access && !other().grants_access) {
    return fail(Code::kPermission, "mem.rma");
  }
  const auto& regions = other().port->regions;
  const auto found = regions.find(pending.key.key);
  if (found == regions.end()) return fail(Code::kPermission, "mem.rma");
  const MutableByteSpan memory = found->second;
  if (!inside(pending.offset, pending.bytes, std::min(pending.key.length, memory.size()))) {
    return fail(Code::kInvalidArgument, "mem.rma");
  }
  std::byte* remote = memory.data() + pending.offset;
  for (std::size_t i = 0; i < pending.piece_count; ++i) {
    const LocalPiece& piece = pending.pieces[i];
    if (piece.length == 0) continue;
    if (pending.write) {
      std::memcpy(remote, piece.data, piece.length);
    } else {
      std::memcpy(piece.data, remote, piece.length);
    }
    remote += piece.length;
  }
  return {};
}

bool LinkCore::progress() {
  if (closed_) return false;
  const auto keep_alive = shared_from_this();
  if (!announced_) return progress_connecting();
  bool any = run_operations();
  any |= deliver_messages();
  any |= notice_close();
  return any;
}

bool LinkCore::progress_connecting() {
  WireState state;
  {
    const MutexLock lock(endpoint_.fabric().mutex);
    state = wire_->state;
  }
  if (state == WireState::kConnected) {
    announced_ = true;
    handler_->on_connected(*link_);
    return true;
  }
  if (state != WireState::kConnecting) {
    close(Code::kPeerLost, "mem.connect");
    return true;
  }
  if (endpoint_.clock().now() < connect_by_) return false;
  {
    const MutexLock lock(endpoint_.fabric().mutex);
    wire_->state = WireState::kClosed;
  }
  close(Code::kDeadline, "mem.connect");
  return true;
}

bool LinkCore::run_operations() {
  // Operations that completions start wait for the next poll().
  const std::size_t burst = std::min(operations_.size(), kBurst);
  for (std::size_t i = 0; i < burst && !operations_.empty(); ++i) {
    const Pending pending = operations_.front();
    operations_.pop_front();
    pending.operation->finish(transfer(pending));
  }
  return burst > 0;
}

bool LinkCore::deliver_messages() {
  bool any = false;
  for (std::size_t i = 0; i < kBurst && !destroyed(); ++i) {
    std::vector<std::byte> message;
    {
      const MutexLock lock(endpoint_.fabric().mutex);
      auto& inbox = mine().inbox;
      if (inbox.empty()) break;
      // The peer has room to send again.
      if (inbox.size() >= kMessagesQueuedMax) other().port->signal();
      message = std::move(inbox.front());
      inbox.pop_front();
    }
    any = true;
    handler_->on_message(*link_, message);
  }
  return any;
}

bool LinkCore::notice_close() {
  if (closed_) return false;
  {
    const MutexLock lock(endpoint_.fabric().mutex);
    // Messages from before the close are delivered before on_closed().
    if (wire_->state == WireState::kConnected || !mine().inbox.empty()) return false;
  }
  close(fenced_here_ ? Code::kFenced : Code::kPeerLost, "mem.link");
  return true;
}

void LinkCore::close(Code code, const char* where) {
  const auto keep_alive = shared_from_this();
  closed_ = true;
  finish_all(code);
  if (destroyed()) return;
  handler_->on_closed(*link_, Error{code, 0, where});
}

}  // namespace stdchk::transport::mem
