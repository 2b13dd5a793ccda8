#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/back_off.h"
#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "transport/direct_memory.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::client {

class Rail;

/// A RailOwner hears how its rails fare. It must not destroy the rail that calls it.
class RailOwner {
 public:
  virtual ~RailOwner() = default;
  virtual void on_ready(Rail& rail) = 0;
  /// Not called for what ends within Rail::open.
  virtual void on_parked(Rail& rail) = 0;
};

/// A Rail is one way to a benefactor: one of its addresses, and the endpoints here that reach it.
///
/// | state      | leaves when                                         |
/// |------------|-----------------------------------------------------|
/// | idle       | open() -> connecting                                |
/// | connecting | attached -> ready; it failed -> parked              |
/// | ready      | the link is lost -> parked                          |
/// | parked     | its time is over and open() is called -> connecting |
///
/// It measures its rate: bytes that ended well, over the time in which something was in flight.
///
/// Owns: the link. Threads: the reactor's.
class Rail final : public rpc::PeerHandler {
 public:
  enum class State : std::uint8_t { kIdle, kConnecting, kReady, kParked };

  /// `endpoints` of one kind, at least one. They are tried one after the other, beginning with
  /// number `first`, so that the rails of a benefactor are spread over them.
  Rail(RailOwner& owner, Reactor& reactor, std::string address,
       std::vector<transport::Endpoint*> endpoints, std::size_t first);
  ~Rail() override;
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  /// Connects and attaches, unless it is at it or ready, or parked and its time is not over and
  /// `parked_too` is false. True: it is connecting or ready.
  /// Without a ticket it proves nothing to anybody: see Endpoint::connect.
  bool open(const msg::Attach& attach, const std::optional<transport::secure::Ticket>& ticket,
            bool parked_too);
  /// It is of no use at present: `why` is known before its link tells.
  void park(Error why);

  State state() const { return state_; }
  const std::string& address() const { return address_; }
  std::string_view transport() const { return endpoint().capabilities().name; }
  bool same_host_only() const { return endpoint().capabilities().same_host_only; }
  transport::Endpoint& endpoint() const { return *endpoints_[current_]; }
  const Error& last_error() const { return why_; }
  std::uint64_t bytes_per_s() const { return bytes_per_s_; }  ///< 0: not measured yet

  // While ready:
  transport::Link& link() { return peer_->link(); }
  const transport::RemoteKey& key() const { return key_; }
  /// The benefactor's arena, if any thread can read it directly; otherwise nullptr.
  const transport::DirectMemoryPtr& direct_memory() const { return direct_memory_; }
  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  bool full() const { return full_; }  ///< its queue was, and nothing has ended since
  void set_full(bool full) { full_ = full; }
  /// Presents the grant to the benefactor, unless this link has done so. Writes that start later
  /// come after it.
  Status present(const Grant& grant);
  void count_started(std::uint64_t bytes);
  void count_ended(std::uint64_t bytes, bool good);

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
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
  std::size_t current_;              ///< the endpoint in use, or that was used last
  std::size_t endpoints_tried_ = 0;  ///< since open()
  bool moves_on_ = false;            ///< connect_by_next() follows
  msg::Attach attach_;
  std::optional<transport::secure::Ticket> ticket_;
  State state_ = State::kIdle;
  std::unique_ptr<rpc::Peer> peer_;
  transport::RemoteKey key_;
  transport::DirectMemoryPtr direct_memory_;
  Error why_;  ///< of the last failure
  Time parked_until_{};
  BackOff back_off_{std::chrono::milliseconds(200), std::chrono::seconds(5)};
  bool told_ = false;  ///< the failure was logged, and it has not been ready since

  std::unordered_set<std::uint64_t> presented_;  ///< grants, on this link
  bool full_ = false;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint64_t bytes_moved_ = 0;  ///< since `measured_from_`
  Time measured_from_{};
  std::uint64_t bytes_per_s_ = 0;
  Lifetime lifetime_;  ///< for calls that come later
};

}  // namespace stdchk::client
