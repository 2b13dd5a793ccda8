#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/messages/messages.h"
#include "core/runtime/reactor.h"
#include "manager/recovery/rebuilder.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Standby follows a manager. It asks twice a second for the quorum of benefactors, and lets its
/// Rebuilder take over when the manager is silent. After a take-over it informs the old manager,
/// if that manager comes back, that a later manager serves the pool.
///
/// Owns: the link to the manager; not the endpoint, which the caller adds to the reactor.
/// Threads: the reactor's.
/// Errors: on_refused, when asking again will not help. The standby waits for a manager that it
///   has never heard.
class Standby final : public rpc::PeerHandler {
 public:
  struct Config {
    std::string manager;                ///< its address
    std::string address;                ///< where benefactors and clients find the standby
    Duration silence{};                 ///< a manager silent for longer counts as lost
    std::function<void()> on_followed;  ///< the manager has accepted this standby
    std::function<void(const std::string&)> on_refused;
  };

  Standby(Reactor& reactor, transport::Endpoint& endpoint, Config config);
  ~Standby() override;
  Standby(const Standby&) = delete;
  Standby& operator=(const Standby&) = delete;

  /// Follows for a rebuilder that was started by start_as_standby() and outlives announce().
  void watch(Rebuilder& rebuilder);
  /// The rebuilder is done: announces the manager of that epoch, which serves here.
  void announce(Epoch own);

  /// Returns true when the manager was heard, and not lost since.
  bool follows() const { return follows_; }

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  void watch_manager_once();
  void ask();
  void answered(const rpc::Answer& answer);
  void followed(const msg::FollowManager::Reply& reply);

  Reactor& reactor_;
  transport::Endpoint& endpoint_;
  Config config_;
  Rebuilder* rebuilder_ = nullptr;  ///< none after announce()
  std::unique_ptr<rpc::Peer> peer_;
  bool asking_ = false;
  bool lost_ = false;  ///< `peer_` is useless: connect again
  bool follows_ = false;
  Time heard_{};
  Rebuilder::Quorum quorum_;  ///< after announce(): the own epoch
  std::uint64_t seen_ = 0;
  TimerId timer_;
};

}  // namespace stdchk::manager
