#include "transport/shm/endpoint.h"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <random>

#include "core/base/limits.h"
#include "transport/message_limit.h"

namespace stdchk::transport::shm {
namespace {

constexpr std::string_view kPrefix = "shm:";
constexpr Duration kDeadlineCheck = std::chrono::milliseconds(100);

/// Returns a name that is unique and hard to guess: an abstract name has no owner and no
/// permissions.
std::string unique_name() {
  static std::atomic<unsigned> count{0};
  std::random_device random;
  return fmt::format("stdchk-{}-{}-{:08x}{:08x}", ::getpid(), ++count, random(), random());
}

/// Fills in an abstract address. It begins with a zero byte, and leaves no file behind (unix(7)).
socklen_t fill_address(sockaddr_un& address, std::string_view name) {
  address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace

Result<std::unique_ptr<Endpoint>> open_shm(Clock& clock) {
  STDCHK_ASSIGN(std::unique_ptr<Endpoint> endpoint, ShmEndpoint::create(clock));
  return endpoint;
}

Result<std::unique_ptr<ShmEndpoint>> ShmEndpoint::create(Clock& clock) {
  std::unique_ptr<ShmEndpoint> endpoint(new ShmEndpoint(clock));
  STDCHK_TRY(endpoint->open());
  return endpoint;
}

Status ShmEndpoint::open() {
  name_ = unique_name();
  // Yama may restrict ptrace(2) to child processes (ptrace_scope 1); then this call lets peers
  // copy. Without Yama the call fails, and is not needed.
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll_fd_ < 0) return fail_errno("shm.epoll");
  capabilities_.name = "shm";
  capabilities_.write_proof = WriteProof::kDelivered;
  capabilities_.fence = FenceKind::kPeerGone;
  capabilities_.one_sided = true;
  capabilities_.target_must_progress = false;
  capabilities_.same_host_only = true;
  capabilities_.message_bytes_max = kMessageBytesMax;
  capabilities_.rma_bytes_max = std::size_t{1} << 30;
  return {};
}

ShmEndpoint::~ShmEndpoint() {
  accepting_.clear();
  STDCHK_ASSERT(links_.empty());
  STDCHK_ASSERT(regions_.empty());
  if (listen_fd_ >= 0) ::close(listen_fd_);
  if (epoll_fd_ >= 0) ::close(epoll_fd_);
}

std::string ShmEndpoint::address() const {
  return listen_fd_ < 0 ? std::string() : std::string(kPrefix) + name_;
}

Status ShmEndpoint::listen(AcceptHandler& handler) {
  sockaddr_un address{};
  const socklen_t length = fill_address(address, name_);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno("shm.listen");
  constexpr int kBacklog = 128;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd, kBacklog) != 0 || ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0) {
    const auto failure = fail_errno("shm.listen");
    ::close(fd);
    return failure;
  }
  listen_fd_ = fd;
  accept_handler_ = &handler;
  return {};
}

Result<std::unique_ptr<Link>> ShmEndpoint::start_link(std::string_view text, LinkHandler& handler,
                                                      Duration deadline,
                                                      const secure::Ticket* /*ticket*/) {
  constexpr std::size_t kNameMax = sizeof(sockaddr_un::sun_path) - 2;
  if (!text.starts_with(kPrefix) || text.size() == kPrefix.size() ||
      text.size() - kPrefix.size() > kNameMax) {
    return fail(Code::kInvalidArgument, "shm.address");
  }
  sockaddr_un address{};
  const socklen_t length = fill_address(address, text.substr(kPrefix.size()));
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return fail_errno("shm.connect");
  // On a Unix socket connect(2) never waits: it succeeds, or fails because nobody listens or the
  // backlog is full.
  const bool refused = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), length) != 0;
  auto link = std::make_unique<ShmLink>(*this, fd, false, clock_.now() + deadline);
  link->set_handler(handler);
  link->refused_ = refused;
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<MemoryRegion>> ShmEndpoint::register_memory(MutableByteSpan memory) {
  return std::unique_ptr<MemoryRegion>(std::make_unique<Region>(*this, memory, next_key_++));
}

bool ShmEndpoint::poll() {
  bool any = poll_copies();
  any |= poll_sockets();
  any |= poll_deadlines();
  return any;
}

bool ShmEndpoint::poll_copies() {
  const std::vector<ShmLink*> links(reporting_.begin(), reporting_.end());
  reporting_.clear();
  for (ShmLink* link : links) {
    if (links_.contains(link)) link->report();
  }
  return !links.empty();
}

bool ShmEndpoint::poll_sockets() {
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_fd_, events, std::size(events), 0);
  for (int i = 0; i < count; ++i) {
    auto* link = static_cast<ShmLink*>(events[i].data.ptr);
    if (link == nullptr) {
      accept_links();
    } else if (links_.contains(link)) {
      if ((events[i].events & EPOLLOUT) != 0) link->flush();
      on_readable(*link);
    }
  }
  return count > 0;
}

void ShmEndpoint::accept_links() {
  for (;;) {
    const int fd = ::accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    accepting_.push_back(
        std::make_unique<ShmLink>(*this, fd, true, clock_.now() + limits::kConnectDeadline));
  }
}

void ShmEndpoint::on_readable(ShmLink& link) {
  if (link.state_ == ShmLink::State::kClosed) return;
  const bool open = link.receive();
  if (!link.handle_frames()) return;
  if (open) return;
  link.peer_closed_ = true;
  on_lost(link, link.refused_ ? Code::kRefused : Code::kPeerLost, "shm.peer");
}

void ShmEndpoint::on_greeted(ShmLink& link) {
  link.state_ = ShmLink::State::kConnected;
  if (!link.accepted_) {
    link.handler_->on_connected(link);
    return;
  }
  const auto found = std::find_if(accepting_.begin(), accepting_.end(),
                                  [&](const auto& each) { return each.get() == &link; });
  STDCHK_ASSERT(found != accepting_.end());
  std::unique_ptr<ShmLink> taken = std::move(*found);
  accepting_.erase(found);
  accept_handler_->on_accept(std::move(taken));
}

void ShmEndpoint::on_lost(ShmLink& link, Code code, const char* where) {
  if (link.state_ == ShmLink::State::kClosed) return;
  if (link.accepted_ && link.state_ == ShmLink::State::kGreeting) {
    std::erase_if(accepting_, [&](const auto& each) { return each.get() == &link; });
    return;
  }
  if (!link.shut(code, where)) return;
  if (link.handler_ != nullptr) link.handler_->on_closed(link, Error{code, 0, where});
}

Duration ShmEndpoint::sleep_max() const {
  const bool greeting = std::any_of(links_.begin(), links_.end(), [](const ShmLink* link) {
    return link->state_ == ShmLink::State::kGreeting;
  });
  return greeting ? kDeadlineCheck : Duration::max();
}

bool ShmEndpoint::poll_deadlines() {
  const Time now = clock_.now();
  if (now < next_deadline_check_) return false;
  next_deadline_check_ = now + kDeadlineCheck;
  std::vector<ShmLink*> late;
  for (ShmLink* link : links_) {
    const bool greeting = link->state_ == ShmLink::State::kGreeting;
    if (greeting && link->connect_deadline_ <= now) late.push_back(link);
  }
  for (ShmLink* link : late) {
    if (links_.contains(link)) on_lost(*link, Code::kDeadline, "shm.deadline");
  }
  return !late.empty();
}

}  // namespace stdchk::transport::shm
