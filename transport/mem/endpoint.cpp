#include "transport/mem/endpoint.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "transport/mem/mem.h"
#include "transport/message_limit.h"

namespace stdchk::transport::mem {

namespace {

constexpr std::string_view kPrefix = "mem:";

constexpr Capabilities kCapabilities{
    .name = "mem",
    .write_proof = WriteProof::kDelivered,
    .fence = FenceKind::kImmediate,
    .one_sided = true,
    .target_must_progress = false,
    .same_host_only = false,  // endpoints may stand for different hosts
    .message_bytes_max = kMessageBytesMax,
    .rma_bytes_max = 64 * limits::kMiB,
};

/// A MemRegion is an entry in its port's table of regions.
class MemRegion final : public MemoryRegion {
 public:
  MemRegion(std::shared_ptr<FabricState> fabric, std::shared_ptr<Port> port, std::uint64_t key,
            MutableByteSpan memory)
      : fabric_(std::move(fabric)), port_(std::move(port)), key_(key), memory_(memory) {}
  ~MemRegion() override {
    const MutexLock lock(fabric_->mutex);
    port_->regions.erase(key_);
  }
  MemRegion(const MemRegion&) = delete;
  MemRegion& operator=(const MemRegion&) = delete;

  MutableByteSpan bytes() const override { return memory_; }
  RemoteKey remote_key() const override {
    return {key_, reinterpret_cast<std::uintptr_t>(memory_.data()), memory_.size()};
  }

 private:
  const std::shared_ptr<FabricState> fabric_;
  const std::shared_ptr<Port> port_;
  const std::uint64_t key_;
  const MutableByteSpan memory_;
};

}  // namespace

Port::Port(std::string port_name)
    : name(std::move(port_name)), event_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  STDCHK_ASSERT(event_fd >= 0);
}

Port::~Port() { ::close(event_fd); }

void Port::signal() {
  if (signalled) return;
  signalled = true;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_fd, &one, sizeof(one));
}

void Port::clear_signal() {
  if (!signalled) return;
  signalled = false;
  std::uint64_t ignored;
  [[maybe_unused]] const auto drained = ::read(event_fd, &ignored, sizeof(ignored));
}

Fabric::Fabric() : state_(std::make_shared<FabricState>()) {}
Fabric::~Fabric() = default;

std::unique_ptr<Endpoint> Fabric::make_endpoint(std::string name, Clock& clock) {
  auto port = std::make_shared<Port>(name);
  {
    const MutexLock lock(state_->mutex);
    auto& entry = state_->ports[name];
    STDCHK_ASSERT(entry.expired());
    entry = port;
  }
  return std::make_unique<MemEndpoint>(state_, std::move(port), clock);
}

MemEndpoint::MemEndpoint(std::shared_ptr<FabricState> fabric, std::shared_ptr<Port> port,
                         Clock& clock)
    : fabric_(std::move(fabric)), port_(std::move(port)), clock_(clock) {}

MemEndpoint::~MemEndpoint() {
  forget_destroyed();
  STDCHK_ASSERT(links_.empty());
  const MutexLock lock(fabric_->mutex);
  STDCHK_ASSERT(port_->regions.empty());
  for (const auto& wire : port_->backlog) {
    if (wire->state == WireState::kConnecting) wire->state = WireState::kRefused;
    wire->sides[0].port->signal();
  }
  port_->backlog.clear();
  port_->listening = false;
  fabric_->ports.erase(port_->name);
}

const Capabilities& MemEndpoint::capabilities() const { return kCapabilities; }

std::string MemEndpoint::address() const {
  return accept_handler_ == nullptr ? std::string() : std::string(kPrefix) + port_->name;
}

Status MemEndpoint::listen(AcceptHandler& handler) {
  accept_handler_ = &handler;
  const MutexLock lock(fabric_->mutex);
  port_->listening = true;
  return {};
}

std::unique_ptr<Link> MemEndpoint::make_link(std::shared_ptr<Wire> wire, std::size_t side,
                                             Time connect_by, LinkHandler* handler) {
  auto core = std::make_shared<LinkCore>(*this, std::move(wire), side, connect_by);
  auto link = std::make_unique<MemLink>(core);
  if (handler != nullptr) core->set_handler(*handler);
  links_.push_back(std::move(core));
  return link;
}

Result<std::unique_ptr<Link>> MemEndpoint::start_link(std::string_view address,
                                                      LinkHandler& handler, Duration deadline,
                                                      const secure::Ticket* /*ticket*/) {
  if (!address.starts_with(kPrefix)) return fail(Code::kInvalidArgument, "mem.connect");
  auto wire = std::make_shared<Wire>();
  {
    const MutexLock lock(fabric_->mutex);
    wire->sides[0].port = port_;
    const auto found = fabric_->ports.find(address.substr(kPrefix.size()));
    auto target = found == fabric_->ports.end() ? nullptr : found->second.lock();
    if (target == nullptr || !target->listening || target->backlog.size() >= kBacklogMax) {
      wire->state = WireState::kRefused;
      wire->sides[1].port = port_;  // no peer; keeps the pointer valid
      port_->signal();
    } else {
      target->backlog.push_back(wire);
      target->signal();
      wire->sides[1].port = std::move(target);
    }
  }
  return make_link(std::move(wire), 0, clock_.now() + deadline, &handler);
}

Result<std::unique_ptr<MemoryRegion>> MemEndpoint::register_memory(MutableByteSpan memory) {
  const MutexLock lock(fabric_->mutex);
  // Scatters keys: a guessed or outdated key should not be valid by accident.
  const std::uint64_t key = ++fabric_->keys_made * 0x9E3779B97F4A7C15ULL;
  port_->regions.emplace(key, memory);
  return std::make_unique<MemRegion>(fabric_, port_, key, memory);
}

bool MemEndpoint::accept_waiting() {
  bool any = false;
  for (;;) {
    std::shared_ptr<Wire> wire;
    {
      const MutexLock lock(fabric_->mutex);
      if (port_->backlog.empty()) return any;
      wire = std::move(port_->backlog.front());
      port_->backlog.pop_front();
      if (wire->state != WireState::kConnecting) continue;  // the opener has given up
      wire->state = WireState::kConnected;
      wire->sides[0].port->signal();
    }
    any = true;
    accept_handler_->on_accept(make_link(std::move(wire), 1, Time::max(), nullptr));
  }
}

void MemEndpoint::forget_destroyed() {
  std::erase_if(links_, [](const auto& link) { return link->destroyed(); });
}

void MemEndpoint::withhold_access() {
  const MutexLock lock(fabric_->mutex);
  port_->withholds_access = true;
}

bool MemEndpoint::poll() {
  {
    const MutexLock lock(fabric_->mutex);
    port_->clear_signal();
  }
  bool any = accept_waiting();
  // By index and by copy, because handlers make and destroy links.
  for (std::size_t i = 0; i < links_.size(); ++i) {
    const auto link = links_[i];
    any |= link->progress();
  }
  forget_destroyed();
  return any;
}

bool MemEndpoint::may_sleep() {
  for (const auto& link : links_) {
    if (!link->idle()) return false;
  }
  const MutexLock lock(fabric_->mutex);
  return !port_->signalled;
}

Duration MemEndpoint::sleep_max() const {
  Duration longest = Duration::max();
  for (const auto& link : links_) {
    if (const auto by = link->connect_by()) longest = std::min(longest, *by - clock_.now());
  }
  return longest;
}

}  // namespace stdchk::transport::mem
