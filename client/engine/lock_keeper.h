#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "client/api/filesystem.h"
#include "client/net/shared.h"
#include "core/base/clock.h"
#include "core/files/file_locks.h"
#include "core/messages/messages.h"
#include "transport/rpc.h"

namespace stdchk::client {

/// A LockKeeper asks the manager for locks on files, repeats requests that wait, and claims the
/// locks of this client from the next manager.
///
/// Owns: the record of the locks that the manager has granted; the requests under way.
/// Threads: any, with the engine's lock held, except in the callbacks, which run on the reactor's
///   thread without the lock.
/// Errors: a request without a ticket ends with the error of its call. A request with a ticket is
///   repeated until it is granted, refused, or cancelled.
/// Not: able to tell an application that its lock is lost. The log names the file.
class LockKeeper {
 public:
  /// As Engine::call(); `done` runs on the reactor's thread without the lock.
  using Call = std::function<void(msg::Request, std::function<void(rpc::Answer)> done)>;
  /// Runs the function after that time on the reactor's thread; to be called on this thread.
  using Later = std::function<void(Duration, std::function<void()>)>;
  using Done = Filesystem::LockDone;
  /// The time before a request is repeated that was not answered.
  static constexpr Duration kPause = std::chrono::milliseconds(200);

  LockKeeper(Shared& shared, Call call, Later later)
      : shared_(shared), call_(std::move(call)), later_(std::move(later)) {}

  void lock(const msg::SetLock& request, Done done) STDCHK_REQUIRES(engine_lock);
  /// Ends the wait. Its `done` gets kCancelled, on the reactor's thread.
  void cancel(std::uint64_t ticket) STDCHK_REQUIRES(engine_lock);
  /// Notes the client's number, which is the old one if `same_client`. A manager of another epoch
  /// gets claims for all locks. With the same manager the locks ended with the client's lease.
  void registered(ClientId client, bool same_client, bool same_epoch) STDCHK_REQUIRES(engine_lock);

 private:
  struct Request {
    msg::SetLock wanted;
    Done done;
    bool cancelled = false;
  };
  using RequestPtr = std::shared_ptr<Request>;
  using Key = std::pair<FileId, msg::LockSpace>;

  void send(const RequestPtr& request) STDCHK_REQUIRES(engine_lock);
  void answered(const RequestPtr& request, const rpc::Answer& answer);
  bool repeats(const RequestPtr& request, const rpc::Answer& answer) STDCHK_REQUIRES(engine_lock);
  Result<msg::LockOutcome> settle(const Request& request, const rpc::Answer& answer)
      STDCHK_REQUIRES(engine_lock);
  void note(const msg::SetLock& granted) STDCHK_REQUIRES(engine_lock);
  void claim(const FileLock& lock) STDCHK_REQUIRES(engine_lock);

  Shared& shared_;
  const Call call_;
  const Later later_;
  ClientId client_ STDCHK_GUARDED_BY(engine_lock);
  std::map<Key, FileLocks> held_ STDCHK_GUARDED_BY(engine_lock);
  std::map<std::uint64_t, RequestPtr> waits_ STDCHK_GUARDED_BY(engine_lock);  ///< by ticket
};

}  // namespace stdchk::client
