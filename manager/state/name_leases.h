#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "core/values/types.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// A NameLeases says which client holds the names of which directory, and which batches of changes
/// the holder has sent (docs/decisions/0075). A restarted manager knows the leases, and applies no
/// batch twice.
///
/// A holder number names all leases that a client has, until it loses them. So a late batch of
/// leases that have ended is not taken for a batch of later leases of the same client.
///
/// Threads: one. Limits: a holder is remembered without leases, too, until end_all().
class NameLeases {
 public:
  struct Holder {
    ClientId client;
    std::uint64_t newest_batch = 0;  ///< 0: it has sent none
    std::set<FileId> directories;    ///< those that it holds
    bool operator==(const Holder&) const = default;
  };

  /// Returns the number of the holder; 0: nobody holds the directory.
  std::uint64_t holder(FileId directory) const;
  /// Returns the client that holds the directory; none: nobody does.
  ClientId client(FileId directory) const;
  /// Returns nullptr when the leases with this number have ended.
  const Holder* find(std::uint64_t holder) const;
  /// Returns the client's present holder number; 0: it has none.
  std::uint64_t number_of(ClientId client) const;
  bool empty() const { return holders_.empty(); }
  /// The leased directories, each with its holder.
  const std::map<FileId, std::uint64_t>& directories() const { return directories_; }
  const std::map<std::uint64_t, Holder>& holders() const { return holders_; }

  void add_holder(std::uint64_t holder, ClientId client);
  /// Requires that nobody else holds the directory.
  void add(FileId directory, std::uint64_t holder);
  void note_batch(std::uint64_t holder, std::uint64_t number);
  void end(std::uint64_t holder, FileId directory);
  /// Ends all leases of the holder, and forgets the holder.
  void end_all(std::uint64_t holder);
  /// The directories whose leases the newest end_all() has ended.
  const std::set<FileId>& ended_last() const { return ended_last_; }
  /// Emits the commands that restore this table. Leaves out directories that `exists` denies.
  void snapshot(const std::function<bool(FileId)>& exists,
                const std::function<void(Command)>& emit) const;

 private:
  std::map<FileId, std::uint64_t> directories_;
  std::map<std::uint64_t, Holder> holders_;
  std::set<FileId> ended_last_;
};

}  // namespace stdchk::manager
