#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/net/shared.h"
#include "client/write/session.h"
#include "core/messages/messages.h"

namespace stdchk::client {

/// A SessionTable holds the sessions of this process, by file and by id.
///
/// Owns: the sessions, each until it has ended; the errors of lost early closes.
/// Threads: any, with the engine's lock held.
/// Limits: remembers kLostMax lost early closes; further ones are forgotten. A call takes time in
///   proportion to the logarithm of the sessions, but for each().
class SessionTable {
 public:
  static constexpr std::size_t kLostMax = 65536;

  explicit SessionTable(Shared& shared) : shared_(shared) {}

  /// The session in which this process writes `file`; nullptr: none. The session may be ending.
  SessionPtr find(FileId file) const STDCHK_REQUIRES(engine_lock);
  SessionPtr find(SessionId id) const STDCHK_REQUIRES(engine_lock);
  bool empty() const STDCHK_REQUIRES(engine_lock) { return by_file_.empty(); }
  std::size_t size() const STDCHK_REQUIRES(engine_lock) { return by_file_.size(); }
  /// Calls `visit` for each session. It must not add or remove sessions.
  template <class Visit>
  void each(Visit visit) const STDCHK_REQUIRES(engine_lock) {
    for (const auto& [file, session] : by_file_) visit(*session);
  }
  void add(const SessionPtr& session) STDCHK_REQUIRES(engine_lock);
  void remove(const Session& session) STDCHK_REQUIRES(engine_lock);
  /// Drops all sessions, because the client ends.
  void let_go() STDCHK_REQUIRES(engine_lock);

  // ---- early closes
  void note_lost(const Session& session) STDCHK_REQUIRES(engine_lock);
  void note_lost(FileId file, const Error& why) STDCHK_REQUIRES(engine_lock);
  /// Returns, once, why an early close of the file has lost its commit.
  std::optional<Error> take_lost(FileId file) STDCHK_REQUIRES(engine_lock);
  bool has_lost() const STDCHK_REQUIRES(engine_lock) { return !lost_.empty(); }

  // ---- files without a version (session_table_pending.cpp)
  /// Holds the request back until the manager knows the request's file, and follows what the
  /// request changes. The queue of calls to the manager asks `may_go`.
  void follow(Work::Call& call) STDCHK_REQUIRES(engine_lock);

 private:
  SessionPtr pending(FileId parent, std::string_view name) const STDCHK_REQUIRES(engine_lock);
  void note_name(Session& session, FileId parent, std::string_view name)
      STDCHK_REQUIRES(engine_lock);
  void drop_name(const Session& session) STDCHK_REQUIRES(engine_lock);
  SessionPtr pending_of(const msg::Request& request) const STDCHK_REQUIRES(engine_lock);
  void note_change(const msg::Request& request, const msg::Reply& reply)
      STDCHK_REQUIRES(engine_lock);

  Shared& shared_;
  std::map<FileId, SessionPtr> by_file_ STDCHK_GUARDED_BY(engine_lock);
  std::map<SessionId, SessionPtr> by_id_ STDCHK_GUARDED_BY(engine_lock);
  /// Files that had no version when they got the name.
  std::map<std::pair<FileId, std::string>, FileId> pending_ STDCHK_GUARDED_BY(engine_lock);
  /// Errors of early closes that no open has reported yet.
  std::map<FileId, Error> lost_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
