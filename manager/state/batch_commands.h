#pragma once

#include <cstdint>

#include "core/base/result.h"
#include "manager/journal/command.h"
#include "manager/state/catalog.h"
#include "manager/state/name_leases.h"

namespace stdchk::manager {

/// A BatchCommands executes commands on leases of directories, and batches of their holders.
///
/// A batch is applied in order, and only to directories that its sender holds. A change that does
/// not fit shows that the holder and the manager disagree. Then the changes before it stay, the rest
/// of the batch is dropped, and all leases of the holder end. Nothing of this depends on state that
/// the journal lacks: a replayed batch stops at the same change.
///
/// Owns: nothing; the tables outlive it. Threads: one.
/// Errors: a command that fails changes nothing. A batch that stops does not fail: afterwards its
///   sender is no holder.
class BatchCommands {
 public:
  BatchCommands(Catalog& catalog, NameLeases& leases) : catalog_(catalog), leases_(leases) {}

  Result<Affected> run(const LeaseNames& command);
  Result<Affected> run(const EndLeases& command);
  Result<Affected> run(const ApplyNames& batch);

 private:
  Status apply(const ApplyNames& batch, const ApplyNames::Entry& one);
  Status add_file(const ApplyNames& batch, const ApplyNames::Entry& one);
  Status add_directory(const ApplyNames& batch, const msg::NameChange& change);
  Status add_symlink(const ApplyNames& batch, const msg::NameChange& change);
  Status remove_file(const ApplyNames& batch, const msg::NameChange& change);
  Status remove_directory(const ApplyNames& batch, const msg::NameChange& change);
  Status rename(const ApplyNames& batch, const msg::NameChange& change);
  Status change_attributes(const ApplyNames& batch, const msg::NameChange& change);
  Status check_held(std::uint64_t holder, FileId directory) const;
  Result<const File*> child(const msg::NameChange& change) const;

  Catalog& catalog_;
  NameLeases& leases_;
};

}  // namespace stdchk::manager
