#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "core/values/types.h"
#include "manager/journal/command.h"

namespace stdchk::manager {

/// A NameLeases says which client holds the names of which directory, and which batches of changes
/// each holder has sent (docs/decisions/0075). A restarted manager knows the leases, and applies no
/// batch twice.
///
/// Threads: one. Limits: a holder is remembered without leases, too, until end_all().
class NameLeases {
 public:
  /// Returns the client that holds the directory; none: nobody does.
  ClientId holder(FileId directory) const;
  bool is_holder(ClientId client) const { return newest_.contains(client); }
  /// Returns the number of the client's newest batch; 0: it has sent none.
  std::uint64_t newest_batch(ClientId client) const;
  bool empty() const { return newest_.empty(); }
  /// The leased directories, each with its holder.
  const std::map<FileId, ClientId>& directories() const { return directories_; }
  /// Each holder, with the number of its newest batch.
  const std::map<ClientId, std::uint64_t>& holders() const { return newest_; }

  /// Requires that no other client holds the directory.
  void add(FileId directory, ClientId client);
  void note_batch(ClientId client, std::uint64_t number);
  void end(ClientId client, FileId directory);
  /// Ends all leases of the client, and forgets its batches.
  void end_all(ClientId client);
  /// Emits the commands that restore this table. Leaves out directories that `exists` denies.
  void snapshot(const std::function<bool(FileId)>& exists,
                const std::function<void(Command)>& emit) const;

 private:
  std::map<FileId, ClientId> directories_;
  std::map<ClientId, std::uint64_t> newest_;
};

}  // namespace stdchk::manager
