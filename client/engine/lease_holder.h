#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "client/net/shared.h"
#include "core/base/clock.h"
#include "core/runtime/reactor.h"
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
  /// Says whether a request of this client may be sent. Requests wait while a batch of changes has to
  /// be repeated. Any thread, with the lock or without.
  virtual bool may_go() const = 0;
  /// The manager wants these directories back.
  virtual void recalled(const std::vector<FileId>& directories) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called when the manager has changed the file's attributes outside of batches: for a commit, or
  /// for another request of this client. The file may be a directory.
  virtual void file_changed(FileId file) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called after each registration. `same`: the manager still has this client's sessions.
  /// `same_epoch`: the manager did not restart.
  virtual void registered(bool same, bool same_epoch) STDCHK_REQUIRES(engine_lock) = 0;
  /// Called every 20 ms.
  virtual void tick() STDCHK_REQUIRES(engine_lock) = 0;
};

/// A LeaseLink connects the engine with the holder of leases, if there is one.
///
/// Threads: as the attributes say.
class LeaseLink {
 public:
  explicit LeaseLink(Reactor& reactor) : reactor_(reactor) {}

  void set_holder(LeaseHolder* holder) STDCHK_REQUIRES(engine_lock) { holder_ = holder; }
  /// Returns nullptr when there is none.
  LeaseHolder* holder() STDCHK_REQUIRES(engine_lock) { return holder_; }
  /// Sends the collected changes before the request that follows.
  void send_changes() STDCHK_REQUIRES(engine_lock) {
    if (holder_ != nullptr) holder_->send_changes();
  }
  /// Returns the function that says whether a request may be sent. Empty: each may.
  std::function<bool()> may_go() const STDCHK_REQUIRES(engine_lock) {
    if (holder_ == nullptr) return {};
    return [holder = holder_] { return holder->may_go(); };
  }
  /// Says that the manager has changed the file's attributes outside of batches.
  void file_changed(FileId file) STDCHK_REQUIRES(engine_lock) {
    if (holder_ != nullptr) holder_->file_changed(file);
  }
  /// Runs `work` on the reactor's thread after `delay`, without the lock. Returns false when the
  /// reactor's queue is full. Any thread.
  bool run_after(Duration delay, std::function<void()> work) {
    auto begin = [this, delay, work = std::move(work)]() mutable {
      reactor_.schedule_after(delay, std::move(work));
    };
    return reactor_.post(std::move(begin)).has_value();
  }

 private:
  Reactor& reactor_;
  LeaseHolder* holder_ STDCHK_GUARDED_BY(engine_lock) = nullptr;
};

}  // namespace stdchk::client
