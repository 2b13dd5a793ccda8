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

/// A ManagerListener hears of what the manager says by itself. On the reactor's thread.
class ManagerListener {
 public:
  virtual ~ManagerListener() = default;
  /// After the first registration and after each one that followed a lost link. `same`: sessions
  /// and pins of before still hold.
  virtual void on_registered(const msg::RegisterClient::Reply& reply, bool same) = 0;
  virtual void on_invalidate(const msg::Invalidate& notice) = 0;
  /// What heartbeats and the goodbye tell; `first` is filled in.
  virtual msg::WriterTotals writer_totals() { return {}; }
  virtual msg::ReaderTotals reader_totals() { return {}; }
  virtual std::uint64_t reader_count() { return 0; }
};

/// A ManagerClient is the link to the manager: registration, heartbeats, calls.
///
/// Owns: the link; opens it again when it is lost, with back-off.
/// Threads: the reactor's.
/// Errors: each call is answered once and before its deadline. Calls in flight when the link is
/// lost
///   are sent again under the same id; kManagerLost when the manager did not answer in time, and
///   what `late` is told comes after that.
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
  /// `deadline` from now. One with `may_go` is sent, again too, only when that answers true. One
  /// with `late` may be done after its caller was told kManagerLost: it is asked for until that
  /// answer is here, for `late`, or the manager has forgotten this client. So are closes and
  /// unpins.
  void call(msg::Request request, Duration deadline, Callback done,
            std::function<bool()> may_go = {}, Callback late = {});
  /// Looks again at those that may not go.
  void send_held();
  ClientId client() const { return client_; }
  Epoch epoch() const { return epoch_; }
  bool registered() const { return registered_; }
  /// It was looked for several times and has not answered anything for limits::kManagerDeadline:
  /// what is asked now is not waited for. Time in which this process itself was stopped is no
  /// silence.
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
    bool sent = false;         ///< over the link of now
    bool sent_before = false;  ///< over any link
    bool given_up = false;     ///< `done` was called, with kManagerLost
  };
  void connect();
  void connect_later(Error why);
  void on_register(rpc::Answer answer);
  void send(std::uint64_t id, Call& call);
  void finish(std::uint64_t id, rpc::Answer answer);
  void give_up(std::uint64_t id);
  void forget_given_up();
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
  std::set<std::uint64_t> held_;  ///< of these, may not go
  ClientId client_;
  ClientId first_;  ///< the number that it had first
  Epoch epoch_;
  std::string proof_;  ///< that client_ is this one's number
  bool registered_ = false;
  bool stopped_ = false;
  bool told_lost_ = false;
  std::uint64_t attempt_ = 0;           ///< counts links: answers of an older one are not taken
  std::uint64_t answered_attempt_ = 0;  ///< the last one that was good for something
  Time answered_last_{};
  TimerId reconnect_;
  TimerId heartbeat_;
  Error last_error_;
};

}  // namespace stdchk::client
