#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/limits.h"
#include "transport/message_limit.h"
#include "transport/shm/endpoint.h"

namespace stdchk::transport::shm {
namespace {

struct FrameHeader {
  std::uint32_t kind;
  std::uint32_t length;
};

constexpr std::size_t kCopiedMax = 1024;   // copies made and not yet reported
constexpr std::size_t kRegionsMax = 4096;  // regions of one peer
constexpr std::size_t kOutgoingMax = 4 * kMessageBytesMax;

bool lies_in_region(const LocalPiece& piece) {
  if (piece.region == nullptr) return false;
  const MutableByteSpan region = piece.region->bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(piece.data);
  const auto region_begin = reinterpret_cast<std::uintptr_t>(region.data());
  return begin >= region_begin && begin - region_begin <= region.size() &&
         piece.length <= region.size() - (begin - region_begin);
}

}  // namespace

Region::Region(ShmEndpoint& endpoint, MutableByteSpan memory, std::uint64_t key)
    : endpoint_(endpoint),
      memory_(memory),
      key_{key, reinterpret_cast<std::uint64_t>(memory.data()), memory.size()} {
  endpoint_.regions_[key] = key_;
  for (ShmLink* link : endpoint_.links_) link->tell_region(ShmLink::Frame::kRegion, key_);
}

Region::~Region() {
  endpoint_.regions_.erase(key_.key);
  for (ShmLink* link : endpoint_.links_) link->tell_region(ShmLink::Frame::kRegionGone, key_);
}

ShmLink::ShmLink(ShmEndpoint& endpoint, int socket, bool accepted, Time connect_deadline)
    : endpoint_(endpoint),
      accepted_(accepted),
      connect_deadline_(connect_deadline),
      socket_(socket) {
  endpoint_.links_.insert(this);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.ptr = this;
  STDCHK_ASSERT(::epoll_ctl(endpoint_.epoll_fd_, EPOLL_CTL_ADD, socket_, &event) == 0);
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (::getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.pid > 0) {
    peer_pid_ = peer.pid;
    peer_process_ = static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0));
  }
  if (peer_pid_ == 0 || peer.uid != ::geteuid()) {
    // Any user may connect to an abstract name, or take one. Other users learn nothing.
    refused_ = true;
    ::shutdown(socket_, SHUT_RDWR);
    return;
  }
  for (const auto& [number, key] : endpoint_.regions_) tell_region(Frame::kRegion, key);
  queue_frame(Frame::kHello, {});
  flush();
}

ShmLink::~ShmLink() {
  endpoint_.links_.erase(this);
  handler_ = nullptr;
  shut(Code::kCancelled, "link.destroyed");
  ::close(socket_);
  if (peer_process_ >= 0) ::close(peer_process_);
}

void ShmLink::queue_frame(Frame kind, ByteSpan body) {
  const FrameHeader header{static_cast<std::uint32_t>(kind),
                           static_cast<std::uint32_t>(body.size())};
  const auto bytes = std::as_bytes(std::span(&header, 1));
  outgoing_.insert(outgoing_.end(), bytes.begin(), bytes.end());
  outgoing_.insert(outgoing_.end(), body.begin(), body.end());
}

void ShmLink::tell_region(Frame kind, const RemoteKey& key) {
  queue_frame(kind, std::as_bytes(std::span(&key, 1)));
  flush();
}

Status ShmLink::send(ByteSpan message) {
  if (message.size() > endpoint_.capabilities_.message_bytes_max) {
    return fail(Code::kTooLarge, "shm.send");
  }
  if (!connected()) return fail(Code::kPeerLost, "shm.send");
  if (outgoing_.size() - outgoing_start_ > kOutgoingMax) return fail(Code::kWouldBlock, "shm.send");
  queue_frame(Frame::kMessage, message);
  flush();
  return {};
}

void ShmLink::flush() {
  while (state_ != State::kClosed && outgoing_start_ < outgoing_.size()) {
    const ssize_t sent = ::send(socket_, outgoing_.data() + outgoing_start_,
                                outgoing_.size() - outgoing_start_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) break;  // no room: poll() tries again; an error: receive() notices the end
    outgoing_start_ += static_cast<std::size_t>(sent);
  }
  if (outgoing_start_ == outgoing_.size()) {
    outgoing_.clear();
    outgoing_start_ = 0;
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP | (outgoing_.empty() ? 0U : std::uint32_t{EPOLLOUT});
  event.data.ptr = this;
  ::epoll_ctl(endpoint_.epoll_fd_, EPOLL_CTL_MOD, socket_, &event);
}

bool ShmLink::receive() {
  incoming_.erase(incoming_.begin(),
                  incoming_.begin() + static_cast<std::ptrdiff_t>(incoming_start_));
  incoming_start_ = 0;
  constexpr std::size_t kStep = 64 * limits::kKiB;
  while (incoming_.size() <= 2 * kMessageBytesMax) {
    const std::size_t had = incoming_.size();
    incoming_.resize(had + kStep);
    const ssize_t got = ::recv(socket_, incoming_.data() + had, kStep, MSG_DONTWAIT);
    incoming_.resize(had + (got > 0 ? static_cast<std::size_t>(got) : 0));
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
  }
  return true;
}

bool ShmLink::handle_frames() {
  const Lifetime::Watch alive = lifetime_.watch();
  while (!alive.expired() && state_ != State::kClosed) {
    FrameHeader header;
    const std::size_t available = incoming_.size() - incoming_start_;
    if (available < sizeof(header)) break;
    std::memcpy(&header, incoming_.data() + incoming_start_, sizeof(header));
    if (header.length > kMessageBytesMax) {
      endpoint_.on_lost(*this, Code::kMalformed, "shm.receive");
      continue;
    }
    if (available < sizeof(header) + header.length) break;
    const std::size_t body = incoming_start_ + sizeof(header);
    incoming_start_ = body + header.length;
    handle_frame(static_cast<Frame>(header.kind), ByteSpan(incoming_).subspan(body, header.length));
  }
  return !alive.expired() && state_ != State::kClosed;
}

void ShmLink::handle_frame(Frame kind, ByteSpan body) {
  RemoteKey key;
  const bool has_key = body.size() == sizeof(key);
  if (has_key) std::memcpy(&key, body.data(), sizeof(key));
  if (kind == Frame::kRegion && has_key && peer_regions_.size() < kRegionsMax) {
    PeerRegion& region = peer_regions_[key.key];
    *region.readable = false;
    region = PeerRegion{key};
  } else if (kind == Frame::kRegionGone && has_key) {
    const auto gone = peer_regions_.find(key.key);
    if (gone == peer_regions_.end()) return;
    *gone->second.readable = false;
    peer_regions_.erase(gone);
  } else if (kind == Frame::kMessage && connected()) {
    if (handler_ != nullptr) handler_->on_message(*this, body);
  } else if (kind == Frame::kHello && state_ == State::kGreeting) {
    // Some containers and security modules forbid copies between processes. If copies are allowed,
    // a copy from address 0 fails with EFAULT.
    std::byte probe{};
    const iovec local{&probe, 1};
    const iovec nowhere{nullptr, 1};
    if (::process_vm_readv(peer_pid_, &local, 1, &nowhere, 1, 0) < 0 && errno != EFAULT) {
      endpoint_.on_lost(*this, Code::kUnsupported, "shm.permission");
    } else {
      endpoint_.on_greeted(*this);
    }
  } else {
    endpoint_.on_lost(*this, Code::kMalformed, "shm.receive");
  }
}

Status ShmLink::write(std::span<const LocalPiece> pieces, const RemoteKey& to, std::uint64_t offset,
                      Operation& operation) {
  return copy(true, pieces, to, offset, operation);
}

Status ShmLink::read(std::span<const LocalPiece> pieces, const RemoteKey& from,
                     std::uint64_t offset, Operation& operation) {
  return copy(false, pieces, from, offset, operation);
}

Status ShmLink::copy(bool is_write, std::span<const LocalPiece> pieces, const RemoteKey& remote,
                     std::uint64_t offset, Operation& operation) {
  const char* const where = is_write ? "shm.write" : "shm.read";
  if (!connected()) return fail(Code::kPeerLost, where);
  if (pieces.empty() || pieces.size() > kPiecesMax) return fail(Code::kInvalidArgument, where);
  if (copied_.size() >= kCopiedMax) return fail(Code::kWouldBlock, where);
  iovec local[kPiecesMax];
  std::size_t total = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!lies_in_region(pieces[i])) return fail(Code::kInvalidArgument, where);
    local[i] = {pieces[i].data, pieces[i].length};
    total += pieces[i].length;
  }
  const auto known = peer_regions_.find(remote.key);
  if (known == peer_regions_.end() || known->second.key != remote || offset > remote.length ||
      total > remote.length - offset) {
    return fail(Code::kInvalidArgument, where);
  }
  const iovec target{reinterpret_cast<void*>(remote.base + offset), total};
  const ssize_t done = is_write
                           ? ::process_vm_writev(peer_pid_, local, pieces.size(), &target, 1, 0)
                           : ::process_vm_readv(peer_pid_, local, pieces.size(), &target, 1, 0);
  operation.started();
  const bool whole = done >= 0 && static_cast<std::size_t>(done) == total;
  copied_.push_back(
      {&operation, whole ? Status{} : fail(Code::kPeerLost, where, done < 0 ? errno : 0)});
  endpoint_.reporting_.insert(this);
  return {};
}

/// A DirectRegion is a peer's region as any thread may read it.
class ShmLink::DirectRegion final : public DirectMemory {
 public:
  DirectRegion(pid_t process, const PeerRegion& region) : process_(process), region_(region) {}

  Status read(std::uint64_t offset, MutableByteSpan out) const override {
    constexpr const char* kWhere = "shm.direct read";
    const RemoteKey& key = region_.key;
    if (offset > key.length || out.size() > key.length - offset) {
      return fail(Code::kInvalidArgument, kWhere);
    }
    if (!*region_.readable) return fail(Code::kPeerLost, kWhere);
    const iovec local{out.data(), out.size()};
    const iovec target{reinterpret_cast<void*>(key.base + offset), out.size()};
    const ssize_t done = ::process_vm_readv(process_, &local, 1, &target, 1, 0);
    if (done >= 0 && static_cast<std::size_t>(done) == out.size()) return {};
    return fail(Code::kPeerLost, kWhere, done < 0 ? errno : 0);
  }

 private:
  const pid_t process_;
  const PeerRegion region_;
};

DirectMemoryPtr ShmLink::direct_memory(const RemoteKey& key) const {
  const auto known = peer_regions_.find(key.key);
  if (!connected() || known == peer_regions_.end() || known->second.key != key) return nullptr;
  return std::make_shared<DirectRegion>(peer_pid_, known->second);
}

void ShmLink::forget_regions() {
  for (const auto& [number, region] : peer_regions_) *region.readable = false;
}

bool ShmLink::report() {
  const Lifetime::Watch alive = lifetime_.watch();
  // Copies that completions start are reported in the next turn.
  std::vector<Copied> copied = std::exchange(copied_, {});
  for (std::size_t i = 0; i < copied.size(); ++i) {
    if (alive.expired()) {
      copied[i].operation->finish(fail(Code::kCancelled, "link.destroyed"));
    } else {
      copied[i].operation->finish(copied[i].status);
    }
  }
  return !alive.expired();
}

bool ShmLink::fence() {
  if (state_ != State::kClosed) {
    state_ = State::kClosed;
    forget_regions();
    ::shutdown(socket_, SHUT_WR);  // a healthy peer closes its end when it sees this
    ::epoll_ctl(endpoint_.epoll_fd_, EPOLL_CTL_DEL, socket_, nullptr);
  }
  // A process copies only on the thread that owns its end of the socket. When that end is closed,
  // or the process has ended, no write can follow.
  if (!peer_closed_) {
    std::byte ignored[4096];
    ssize_t got;
    while ((got = ::recv(socket_, ignored, sizeof(ignored), MSG_DONTWAIT)) > 0) {
    }
    peer_closed_ = got == 0 || (errno != EAGAIN && errno != EINTR);
  }
  if (!peer_closed_ && peer_process_ >= 0) {
    pollfd ended{peer_process_, POLLIN, 0};
    peer_closed_ = ::poll(&ended, 1, 0) == 1;
  }
  return peer_closed_;
}

bool ShmLink::shut(Code code, const char* where) {
  state_ = State::kClosed;
  forget_regions();
  ::shutdown(socket_,
             SHUT_WR);  // from here on this side copies nothing, which the peer's fence() notices
  ::epoll_ctl(endpoint_.epoll_fd_, EPOLL_CTL_DEL, socket_, nullptr);
  endpoint_.reporting_.erase(this);
  outgoing_.clear();
  outgoing_start_ = 0;
  for (Copied& copied : copied_) copied.status = fail(code, where);
  return report();
}

}  // namespace stdchk::transport::shm
