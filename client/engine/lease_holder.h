#pragma once

#include <vector>

#include "client/net/shared.h"
#include "core/values/types.h"

namespace stdchk::client {

/// A LeaseHolder holds directories, and collects changes of their names (docs/decisions/0075). The
/// engine tells it what the manager says about its leases.
///
/// Threads: any, with the engine's lock held. It must not wait.
class LeaseHolder {
 public:
  virtual ~LeaseHolder() = default;
  /// Called before each request of a client: sends the collected changes first.
  virtual void send_changes() STDCHK_REQUIRES(engine_lock) = 0;
  /// The manager wants these directories back.
  virtual void recalled(const std::vector<FileId>& directories) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called after each registration. `same`: the manager still has this client's sessions.
  /// `same_epoch`: the manager is the same process as before.
  virtual void registered(bool same, bool same_epoch) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called every 20 ms.
  virtual void tick() STDCHK_REQUIRES(engine_lock) = 0;
};

}  // namespace stdchk::client
