#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/messages/messages.h"
#include "core/runtime/manager_addresses.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A ManagerListener receives registrations and notices of the manager, and answers for heartbeats.
///
/// Threads: the reactor's.
class ManagerListener {
 public:
  virtual ~ManagerListener() = default;
  /// Called after each registration; each new link begins with a registration. `same`: the manager
  /// still has this client's sessions and pins.
  virtual void on_registered(const msg::RegisterClient::Reply& reply, bool same) = 0;
  virtual void on_invalidate(const msg::Invalidate& notice) = 0;
  /// Totals for heartbeats and the goodbye; ManagerClient fills in `first`.
  virtual msg::WriterTotals writer_totals() { return {}; }
  virtual msg::ReaderTotals reader_totals() { return {}; }
  virtual std::uint64_t reader_count() { return 0; }
};

/// A ManagerClient is the link to the manager: registration, heartbeats, calls.
///
/// Owns: the link; opens it again when it is lost, with back-off.
/// Threads: the reactor's.
/// Errors: each call is answered once and before its deadline. Calls in flight on a lost link are
///   sent again under the same id. kManagerLost: the manager did not answer in time; `late` may
///   follow.
class ManagerClient final : public rpc::PeerHandler {
 public:
  struct Config {
    std::string address;  ///< several with commas: tried in turn
    msg::RegisterClient registration;
  };
  using Callback = std::function<void(rpc::Answer)>;

  ManagerClient(Reactor& reactor, transport::Endpoint& endpoint, Config config,
                ManagerListener& listener);
  ~ManagerClient() override;

  void start();
  /// Says goodbye and sends nothing more; calls that wait end with kCancelled.
  void stop();
  /// Calls the manager; `deadline` counts from now. `may_go`: the call is sent, also the next
  /// times, only when `may_go` returns true. `late`: after kManagerLost the call is repeated until
  /// the manager answers `late`, or has forgotten this client. Closes and unpins are repeated
  /// always.
  void call(msg::Request request, Duration deadline, Callback done,
            std::function<bool()> may_go = {}, Callback late = {});
  /// Asks `may_go` of the held calls again.
  void send_held();
  ClientId client() const { return identity_.client; }
  Epoch epoch() const { return identity_.epoch; }
  bool registered() const { return registered_; }
  /// When the newest registration or heartbeat was sent that was answered: the manager has heard
  /// this client since.
  Time heard_since() const { return heard_since_; }
  /// True when several attempts to reach the manager failed and it has answered nothing for
  /// limits::kManagerDeadline. Callers should not wait for new calls then. Time in which this
  /// process itself was stopped does not count.
  bool silent() const;
  /// Why the last attempt to reach the manager failed.
  const Error& last_error() const { return last_error_; }

  // rpc::PeerHandler
  void on_connected(rpc::Peer& peer) override;
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_notice(rpc::Peer& peer, msg::Notice notice) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  struct Call {
    msg::Request request;
    Time deadline{};
    Callback done;
    TimerId timer;
    std::function<bool()> may_go;
    Callback late;
    bool sent = false;         ///< over the present link
    bool sent_before = false;  ///< over any link
    bool given_up = false;     ///< `done` was called with kManagerLost
  };
  /// An Identity is the manager's answer to a registration: the numbers of this client.
  struct Identity {
    ClientId client;
    ClientId first;  ///< the first number of this client
    Epoch epoch;
    std::string proof;  ///< proves that `client` is this client's number
  };
  void connect();
  void connect_later(Error why);
  void on_register(rpc::Answer answer);
  void send(std::uint64_t id, Call& call);
  void finish(std::uint64_t id, rpc::Answer answer);
  void give_up(std::uint64_t id);
  void drop_abandoned_calls();
  void heartbeat();
  void register_anew(Error why);
  msg::WriterTotals totals() const;

  Reactor& reactor_;
  transport::Endpoint& endpoint_;
  Config config_;
  ManagerListener& listener_;
  ManagerAddresses managers_;
  std::unique_ptr<rpc::Peer> peer_;
  std::map<std::uint64_t, Call> calls_;
  std::set<std::uint64_t> held_;  ///< ids of calls whose `may_go` returned false
  Identity identity_;
  bool registered_ = false;
  bool stopped_ = false;
  bool logged_lost_ = false;
  std::uint64_t attempt_ = 0;           ///< counts links: answers of older links are ignored
  std::uint64_t answered_attempt_ = 0;  ///< the last attempt that led to a registration
  Time answered_last_{};
  Time heard_since_{};
  TimerId reconnect_;
  TimerId heartbeat_;
  Error last_error_;
};

}  // namespace stdchk::client
