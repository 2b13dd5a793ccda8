#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "core/base/clock.h"
#include "core/values/types.h"
#include "manager/clients/clients.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {

/// A Watchers records which clients may still have cached entries of which directory.
///
/// Limits: a watch ends two cache leases after the last look. A client must not use an entry that
/// is older than its lease.
class Watchers {
 public:
  void watch(FileId directory, ClientId client, Time now);
  /// Calls `visit(client)` for each client that watches `directory`.
  template <class Visit>
  void for_each(FileId directory, Time now, Visit visit) {
    const auto watched = directories_.find(directory);
    if (watched == directories_.end()) return;
    for (const auto& [client, until] : watched->second) {
      if (until >= now) visit(client);
    }
  }
  /// Returns true when another client than `except` watches `directory`.
  bool is_watched(FileId directory, ClientId except, Time now) const;
  void forget_old(Time now);

 private:
  std::unordered_map<FileId, std::map<ClientId, Time>> directories_;
};

/// A Notices tells clients that what they may have cached has changed: entries of directories,
/// attributes and maps of files, the list of benefactors. A client gets one notice in a
/// turn of the reactor, with all changes.
///
/// Threads: the reactor's.
/// Errors: a notice that cannot be sent is lost. The client's cache lease then ends the use of what
/// it has cached.
class Notices {
 public:
  /// Calls `on_folder_changed` for each folder that has got, lost or changed an entry.
  Notices(Pool& pool, Clients& clients, std::function<void(FileId folder)> on_folder_changed)
      : pool_(pool), clients_(clients), on_folder_changed_(std::move(on_folder_changed)) {}

  /// Notes that the client may cache entries of the directory now.
  void watch(FileId directory, ClientId client) { watchers_.watch(directory, client, pool_.now()); }
  /// Returns true when another client than `except` may cache entries of the directory.
  bool is_watched(FileId directory, ClientId except) const {
    return watchers_.is_watched(directory, except, pool_.now());
  }
  void forget_old_watches() { watchers_.forget_old(pool_.now()); }
  /// Notes that the client uses the file, in a session or for reading. It may use a file several
  /// times.
  void use(FileId file, ClientId client) { ++users_[file][client]; }
  void unuse(FileId file, ClientId client);

  /// Tells clients that may have cached the entry, except `except`.
  void entry_changed(FileId directory, const std::string& name, ClientId except);
  /// Tells clients that may have cached the file's attributes or map, except `except`.
  void file_changed(FileId file, ClientId except);
  /// Tells the file's users that several hosts read it.
  void file_shared(FileId file);
  /// Calls `visit(client)` for users of the file, `most` at most, until it returns true. Returns
  /// whether it did.
  template <class Visit>
  bool any_user(FileId file, std::size_t most, Visit visit) const {
    const auto users = users_.find(file);
    if (users == users_.end()) return false;
    for (const auto& [client, count] : users->second) {
      if (visit(client)) return true;
      if (--most == 0) return false;
    }
    return false;
  }
  /// Tells the client to return its lease on the directory.
  void recall(ClientId client, FileId directory);
  /// Tells all clients.
  void benefactors_changed();

 private:
  msg::Invalidate* invalidate_of(ClientId client);
  void flush();

  Pool& pool_;
  Clients& clients_;
  const std::function<void(FileId)> on_folder_changed_;
  Watchers watchers_;
  std::unordered_map<FileId, std::map<ClientId, std::uint32_t>> users_;
  std::set<ClientId> to_invalidate_;
  bool posted_ = false;
};

}  // namespace stdchk::manager
