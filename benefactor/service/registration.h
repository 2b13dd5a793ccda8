#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "benefactor/memory/metadata_log.h"
#include "benefactor/service/client_links.h"
#include "benefactor/service/config.h"
#include "benefactor/service/manager_requests.h"
#include "core/runtime/manager_addresses.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// A Registration keeps this benefactor registered with the pool's manager. It keeps the manager's
/// link up as long as it lives, with back-off and always as the same life.
///
/// It refuses a manager whose epoch is lower than the highest one seen. After a restart of the
/// manager, it fences every link of earlier clients before it serves any request of that manager.
///
/// Owns: the link to the manager. Threads: the reactor's.
class Registration final : public rpc::PeerHandler {
 public:
  struct Parts {
    const Config& config;
    Membership& membership;
    std::uint64_t arena_bytes;
    transport::Endpoint& control;
    const MetadataLog& log;
    ClientLinks& clients;
    ManagerRequests& requests;
  };
  Registration(Reactor& reactor, Parts parts);
  ~Registration() override;
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  /// Begins to register with the manager.
  void connect();
  /// Tells the manager that this benefactor wants to end, so that its sole copies are
  /// copied elsewhere. Calls `may_go(true)` when that is done, `may_go(false)` when
  /// there is no manager to tell.
  void leave(std::function<void(bool done)> may_go);
  /// The newest record of this epoch that the benefactor knows to be answered.
  std::uint64_t newest_sequence() const { return newest_sequence_; }

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  void register_now();
  void on_register_answer(const rpc::Answer& answer);
  void refused(const rpc::Failure& failure);
  void accept(const msg::RegisterBenefactor::Reply& reply);
  void send_heartbeat();
  void on_heartbeat(const rpc::Answer& answer);
  void lose_manager(Error why);
  bool has_proven(const rpc::Peer& peer) const;

  Reactor& reactor_;
  const Parts parts_;
  ManagerAddresses managers_;
  std::shared_ptr<rpc::Peer> manager_;  ///< jobs whose link is gone are not begun
  ClientId first_client_;               ///< of the present epoch
  std::uint64_t newest_sequence_ = 0;   ///< the newest answered record of the present epoch
  std::string proof_;                   ///< of the id, the epoch and newest_sequence_
  TimerId timer_;
  std::function<void(bool)> on_may_go_;  ///< set: the benefactor wants to leave
};

}  // namespace stdchk::benefactor
