#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/values/types.h"
#include "manager/journal/command.h"
#include "manager/state/catalog.h"
#include "manager/state/command_counts.h"
#include "manager/state/completion_records.h"
#include "manager/state/file.h"
#include "manager/state/name_leases.h"
#include "manager/state/pending_names.h"

namespace stdchk::manager {

/// A State is the manager's durable knowledge: names, versions, chunks, lives of benefactors. Only
/// apply() changes it (rule M7); the same commands in the same order make the same state.
///
/// It also keeps what running sessions need, in memory only: pending files, pins of versions, holds
/// of chunks. These decide when memory is freed, but never what apply() does to committed names and
/// maps. A restarted manager starts without them.
///
/// Owns: the tables. Threads: one. Errors: a command that fails changes nothing.
/// Limits: pointers into the state are valid until its next change.
class State {
 public:
  Result<Affected> apply(const Command& command);
  /// Applies a command on a file without a name, which the journal does not get. Such commands are
  /// not counted by lacks().
  Result<Affected> apply_unjournalled(const Command& command);
  /// Returns the extents that lost their last reference since the last call.
  std::vector<FreedExtent> take_freed() { return catalog_.contents.take_freed(); }
  /// Returns data chunks of stripes that since the last call became unused except by their stripe.
  std::vector<ChunkIndex> take_unused_stripe_members() {
    return catalog_.contents.take_unused_stripe_members();
  }
  /// Emits the commands that make this state from an empty one.
  void snapshot(const std::function<void(Command)>& emit) const;

  // ---- the tables ----
  const FileTable& files() const { return catalog_.files; }
  const ContentTable& contents() const { return catalog_.contents; }
  const CommitLists& commits() const { return catalog_.commits; }
  /// Reads names by the rules of sets.
  SetNames set_names() const { return catalog_.names(); }
  const MirrorQueue& mirror() const { return catalog_.mirror; }
  const SetGenerations& set_generations() const { return catalog_.generations; }
  const CompletionRecords& completion_records() const { return completion_records_; }
  const NameLeases& name_leases() const { return name_leases_; }
  const std::map<BenefactorId, BenefactorRecord>& benefactors() const { return benefactors_; }
  const History& history() const { return catalog_.history; }
  /// The number of the newest commit.
  std::uint64_t sequence() const { return catalog_.sequence; }
  Epoch epoch() const { return counts_.epoch(); }
  /// Returns true when this state is known to have fewer than `sequence` commands of `epoch`.
  bool lacks(Epoch epoch, std::uint64_t sequence) const { return counts_.lacks(epoch, sequence); }
  bool empty() const { return files().size() == 1 && benefactors_.empty() && epoch().value == 0; }

  // ---- often read ----
  const File* file(FileId id) const { return files().file(id); }
  Result<const File*> directory(FileId id) const { return files().directory(id); }
  Result<const File*> lookup(FileId parent, std::string_view name, ClientId viewer) const {
    return files().lookup(parent, name, viewer);
  }
  const VersionData* version(FileId id, Version version) const {
    return files().version(id, version);
  }
  std::string path(const File& file) const { return files().path(file); }
  const ChunkTable& chunks() const { return contents().chunks(); }
  const StripeTable& stripes() const { return contents().stripes(); }
  const MirrorQueue::Changes& mirror_queue() const { return mirror().changes(); }

  // ---- soft state: not journalled ----
  PendingNames pending() { return PendingNames(catalog_.files); }
  void keep(FileId id) { catalog_.keep(id); }
  void unkeep(FileId id) { catalog_.unkeep(id); }
  Status pin(FileId id, Version version) { return catalog_.pin(id, version); }
  void unpin(FileId id, Version version) { catalog_.unpin(id, version); }
  void set_older_aside(FileId id, std::uint64_t number) { catalog_.set_older_aside(id, number); }
  void hold(ChunkIndex chunk) { catalog_.contents.hold(chunk); }
  void release(ChunkIndex chunk) { catalog_.contents.release(chunk); }

 private:
  template <class C>
  Result<Affected> run(const C& command);
  Result<Affected> add_benefactor(const AddBenefactor& command);
  void restore_counters(const RestoreCounters& command);
  void snapshot_files(const std::function<void(Command)>& emit) const;
  void snapshot_stripes(const std::function<void(Command)>& emit) const;

  Catalog catalog_;
  std::map<BenefactorId, BenefactorRecord> benefactors_;
  CommandCounts counts_;
  CompletionRecords completion_records_;
  NameLeases name_leases_;
};

}  // namespace stdchk::manager
