#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/blocking/blocking_questions.h"
#include "client/blocking/leased_names.h"
#include "client/blocking/look_ahead.h"
#include "core/base/clock.h"

namespace stdchk::client {

/// A BlockingNames is the part of a Filesystem that has the names, attributes and policies of files.
/// The metadata cache answers most look-ups.
///
/// Threads: any.
class BlockingNames : public BlockingQuestions {
 public:
  Result<Attributes> lookup(FileId parent, std::string_view name) override;
  Result<Attributes> lookup_fresh(FileId parent, std::string_view name) override;
  Result<Attributes> attributes(FileId file) override;
  Result<Attributes> attributes_fresh(FileId file) override STDCHK_EXCLUDES(engine_lock);
  Result<Attributes> resolve(std::string_view path) override;
  Result<std::vector<msg::DirectoryEntry>> read_directory(FileId directory) override;
  Result<Attributes> set_attributes(const msg::SetAttributes& change) override;
  Result<Attributes> make_directory(FileId parent, std::string_view name, Owner owner) override;
  Result<Attributes> make_symlink(FileId parent, std::string_view name, std::string_view target,
                                  Owner owner) override;
  Result<std::string> read_symlink(FileId file) override;
  Result<Attributes> make_node(FileId parent, std::string_view name, FileType type, Owner owner,
                               std::uint32_t device) override;
  Result<Attributes> make_link(FileId file, FileId parent, std::string_view name) override;
  Result<std::uint32_t> remove(FileId parent, std::string_view name, bool directory) override;
  Result<std::uint32_t> rename(const msg::Rename& change) override;
  Status set_xattr(const msg::SetXattr& change) override;
  Result<std::vector<std::pair<std::string, std::string>>> xattrs(FileId file) override;
  Result<msg::GetPolicy::Reply> policy(FileId file) override;
  Outcome<void> set_policy(FileId directory, const Policy& changes) override;
  Result<std::pair<Attributes, ChunkMap>> map(FileId file) override;
  void lock(const msg::SetLock& request, LockDone done) override;
  Result<msg::GetLock::Reply> get_lock(msg::GetLock request) override;

  /// Holds directories from now on; see name_leasing.h.
  void lease_names() { leased_ = std::make_unique<LeasedNames>(*this); }
  /// Waits until all changes of names are durable that were answered.
  Status sync_names() { return leased_ == nullptr ? Status{} : leased_->sync(); }
  /// See name_leasing.h.
  Status sync_names(FileId about) STDCHK_EXCLUDES(engine_lock);

 protected:
  explicit BlockingNames(Clock& clock) : BlockingQuestions(clock) {}

  /// Returns nullptr when this Filesystem holds no directories.
  LeasedNames* leased() const { return leased_.get(); }
  /// Waits until the manager knows the file.
  Status settle(FileId file) { return leased_ == nullptr ? Status{} : leased_->settle(file); }

  /// True when the file was seen under a name A.Ni.Tj: its fsync does not commit.
  bool is_image(FileId file) const STDCHK_REQUIRES(engine_lock) { return images_.contains(file); }
  void note_name(FileId file, std::string_view name) STDCHK_REQUIRES(engine_lock);
  /// Puts a new name into the metadata cache. The listing of its directory is then stale.
  void put_name(FileId parent, std::string_view name, const Attributes& attributes)
      STDCHK_REQUIRES(engine_lock);
  Result<Attributes> lookup_at_manager(FileId parent, std::string_view name);
  /// Drops the name, and the attributes of the file, from the metadata cache.
  void forget(FileId parent, std::string_view name, FileId file);

 private:
  template <class R>
  Result<Attributes> make(R request, LeasedNames::Turn& turn);
  Result<Attributes> cached_attributes(FileId file);
  Result<std::optional<Attributes>> lookup_held(LeasedNames::Turn& turn, FileId parent,
                                                std::string_view name);
  Result<std::vector<msg::DirectoryEntry>> list(FileId directory);
  Status complete(FileId directory, std::vector<msg::DirectoryEntry>& entries);
  Attributes with_session_state(Attributes attributes);
  void look_ahead(FileId directory, std::string_view after);
  void remember_page(FileId directory, const rpc::Answer& answer);

  std::unique_ptr<LeasedNames> leased_;
  std::unordered_set<FileId> images_ STDCHK_GUARDED_BY(engine_lock);
  LookAhead look_ahead_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
