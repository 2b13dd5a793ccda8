#pragma once

#include <memory>
#include <optional>

#include "core/base/clock.h"
#include "core/runtime/reactor.h"
#include "manager/clients/clients.h"
#include "manager/clients/fences.h"
#include "manager/clients/notices.h"
#include "manager/clients/sessions.h"
#include "manager/journal/journal.h"
#include "manager/pool/config.h"
#include "manager/pool/pool.h"
#include "manager/service/admissions.h"
#include "manager/service/connections.h"
#include "manager/service/planners.h"
#include "manager/service/services.h"
#include "transport/transport.h"

namespace stdchk::manager {

/// A Service runs the manager: it makes the pool, the planners and the services, and ticks them.
///
/// Owns: all of them, and the links that peers opened. Not the journal.
/// Threads: the reactor's.
/// Errors: every change is answered kReadOnly after the journal fails, has turned out to have lost
/// its end, or a later manager has taken over. Then the process should end.
class Service final : public transport::AcceptHandler {
 public:
  Service(Reactor& reactor, Journal& journal, Config config);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Loads the journal, begins a new epoch, and accepts links from now on.
  Status start();
  /// Closes all links and lets the journal finish.
  void stop();

  void on_accept(std::unique_ptr<transport::Link> link) override {
    connections_.on_accept(std::move(link));
  }

  // For tests and metrics.
  Pool& pool() { return pool_; }
  const Pool& pool() const { return pool_; }
  const State& state() const { return pool_.state(); }
  const SessionTable& sessions() const { return sessions_; }
  Planners& planners() { return planners_; }
  const Planners& planners() const { return planners_; }
  Services& services() { return services_; }
  const Services& services() const { return services_; }

 private:
  void tick();
  void discount_own_pause();
  void end_resuming();

  Pool pool_;
  Clients clients_;
  SessionTable sessions_;
  Notices notices_;
  Fences fences_;
  Planners planners_;
  Admissions admissions_;
  Connections connections_;
  Services services_;
  TimerId ticker_;
  Time ticked_{};  ///< time of the last tick
};

}  // namespace stdchk::manager
