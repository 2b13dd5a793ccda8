#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "client/net/rate_meter.h"
#include "core/base/back_off.h"
#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "transport/direct_memory.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::client {

class Rail;

/// A RailOwner handles changes of its rails. Its functions must not destroy the calling rail.
class RailOwner {
 public:
  virtual ~RailOwner() = default;
  virtual void on_ready(Rail& rail) = 0;
  /// Not called when Rail::open() itself fails.
  virtual void on_parked(Rail& rail) = 0;
};

/// A Rail is one way to a benefactor: one address of the benefactor, and the endpoints of this
/// process that reach that address.
///
/// | state      | leaves when                                         |
/// |------------|-----------------------------------------------------|
/// | idle       | open() -> connecting                                |
/// | connecting | attached -> ready; failed -> parked                 |
/// | ready      | the link is lost -> parked                          |
/// | parked     | the pause is over and open() is called -> connecting|
///
/// Owns: the link. Threads: the reactor's.
class Rail final : public rpc::PeerHandler {
 public:
  enum class State : std::uint8_t { kIdle, kConnecting, kReady, kParked };

  /// `endpoints` are of one kind, at least one. The rail tries them in turn, beginning with number
  /// `first`. Different numbers spread a benefactor's rails over the endpoints.
  Rail(RailOwner& owner, Reactor& reactor, std::string address,
       std::vector<transport::Endpoint*> endpoints, std::size_t first);
  ~Rail() override;
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  /// Connects and attaches an idle rail. A parked rail stays parked until its pause is over, unless
  /// `parked_too`. Returns true when the rail is connecting or ready.
  /// Without a ticket, this process proves nothing to the benefactor: see Endpoint::connect.
  bool open(const msg::Attach& attach, const std::optional<transport::secure::Ticket>& ticket,
            bool parked_too);
  /// Stops using the rail for now, before its link reports the loss.
  void park(Error why);

  State state() const { return state_; }
  const std::string& address() const { return address_; }
  std::string_view transport() const { return endpoint().capabilities().name; }
  bool same_host_only() const { return endpoint().capabilities().same_host_only; }
  transport::Endpoint& endpoint() const { return *endpoints_[current_]; }
  const Error& last_error() const { return failure_.why; }
  const RateMeter& meter() const { return meter_; }

  // While ready:
  transport::Link& link() { return peer_->link(); }
  const transport::RemoteKey& key() const { return key_; }
  /// The benefactor's arena, if any thread can read it directly; otherwise nullptr.
  const transport::DirectMemoryPtr& direct_memory() const { return direct_memory_; }
  /// True when the link's queue was full and no transfer has ended since.
  bool full() const { return full_; }
  void set_full(bool full) { full_ = full; }
  /// Presents the grant to the benefactor, once for each link. The benefactor receives the grant
  /// before any write that starts later.
  Status present(const Grant& grant);
  void count_started(std::uint64_t bytes);
  void count_ended(std::uint64_t bytes, bool good);

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  /// A Failure is the rail's last failure, with the pause that follows it.
  struct Failure {
    Error why;
    Time parked_until{};
    BackOff back_off{std::chrono::milliseconds(200), std::chrono::seconds(5)};
    bool logged = false;  ///< cleared when the rail is ready again
  };
  bool connect();
  void on_attached(rpc::Answer answer);
  void set_parked(Error why);
  void later(void (Rail::*call)());
  void connect_by_next();
  void drop_peer();

  RailOwner& owner_;
  Reactor& reactor_;
  const std::string address_;
  const std::vector<transport::Endpoint*> endpoints_;
  std::size_t current_;              ///< the endpoint used last
  std::size_t endpoints_tried_ = 0;  ///< since open()
  bool moves_on_ = false;            ///< connect_by_next() is scheduled
  msg::Attach attach_;
  std::optional<transport::secure::Ticket> ticket_;
  State state_ = State::kIdle;
  std::unique_ptr<rpc::Peer> peer_;
  transport::RemoteKey key_;
  transport::DirectMemoryPtr direct_memory_;
  Failure failure_;
  std::unordered_set<std::uint64_t> presented_;  ///< ids of grants presented on this link
  bool full_ = false;
  RateMeter meter_;
  Lifetime lifetime_;  ///< for scheduled calls
};

}  // namespace stdchk::client
