#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "client/api/filesystem.h"
#include "client/blocking/look_ahead.h"
#include "client/engine/engine.h"
#include "core/base/clock.h"

namespace stdchk::client {

/// A BlockingNames is the part of a Filesystem that waits for answers of the manager: names,
/// attributes, policies, and questions about the pool. The metadata cache answers most look-ups.
///
/// Owns: the engine, which the derived class makes and destroys.
/// Threads: any.
class BlockingNames : public Filesystem {
 public:
  Result<Attributes> lookup(FileId parent, std::string_view name) override;
  Result<Attributes> lookup_fresh(FileId parent, std::string_view name) override;
  Result<Attributes> attributes(FileId file) override;
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
  Status set_policy(FileId directory, const Policy& changes) override;
  Result<msg::ListSets::Reply> sets(FileId directory) override;
  Result<msg::StatPool::Reply> stat_pool() override;
  Result<msg::GetDebt::Reply> debt(FileId file, Version version) override;
  Result<std::pair<Attributes, ChunkMap>> map(FileId file) override;
  Result<std::vector<msg::BenefactorInfo>> benefactors() override;
  Result<msg::DrainNow::Reply> drain(FileId below) override;
  Result<std::vector<msg::ListAborted::Entry>> aborted() override;
  void lock(const msg::SetLock& request, LockDone done) override;
  void cancel_lock(std::uint64_t ticket) override;
  Result<msg::GetLock::Reply> get_lock(msg::GetLock request) override;
  Result<msg::Reply> ask(msg::Request request) override;
  /// Waits until `version` of the file has all its copies. The deadline starts anew whenever copies
  /// are made. Must be called without the lock.
  Status wait_redundant(FileId file, Version version) STDCHK_EXCLUDES(engine_lock);

  /// Returns what the manager says now, without what this process has not committed.
  Result<Attributes> attributes_fresh(FileId file) STDCHK_EXCLUDES(engine_lock);

  Engine& engine() const { return *engine_; }
  /// Calls `step` with the lock held until it returns anything but kWouldBlock, or until the
  /// deadline.
  Status wait(Lock& lock, Time deadline, const std::function<Status()>& step)
      STDCHK_REQUIRES(engine_lock);
  Time deadline() const;

 protected:
  explicit BlockingNames(Clock& clock) : clock_(clock) {}

  Clock& clock() const { return clock_; }
  void set_engine(std::unique_ptr<Engine> engine) { engine_ = std::move(engine); }
  /// True when the file was seen under a name A.Ni.Tj: its fsync does not commit.
  bool is_image(FileId file) const STDCHK_REQUIRES(engine_lock) { return images_.contains(file); }
  void note_name(FileId file, std::string_view name) STDCHK_REQUIRES(engine_lock);
  /// Drops the name, and the attributes of the file, from the metadata cache.
  void forget(FileId parent, std::string_view name, FileId file);

 private:
  template <class R>
  Result<typename R::Reply> ask_for(R request);
  void remember(FileId parent, std::string_view name, const Attributes& attributes);
  template <class Reply>
  Result<Attributes> made(FileId parent, std::string_view name, const Result<Reply>& reply);
  Attributes seen(Attributes attributes);
  void look_ahead(FileId directory, std::string_view after);

  Clock& clock_;
  std::unique_ptr<Engine> engine_;
  std::unordered_set<FileId> images_ STDCHK_GUARDED_BY(engine_lock);
  LookAhead look_ahead_ STDCHK_GUARDED_BY(engine_lock);
};

}  // namespace stdchk::client
