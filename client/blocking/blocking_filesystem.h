#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "client/api/filesystem.h"
#include "client/blocking/look_ahead.h"
#include "client/blocking/open_file.h"
#include "client/blocking/window_buffers.h"
#include "client/engine/engine.h"
#include "core/base/executor.h"
#include "core/runtime/reactor.h"
#include "transport/transport.h"

namespace stdchk::client {

/// A BlockingFilesystem gives an Engine its threads, and lets callers wait.
///
/// Owns: the endpoints, the reactor and its thread, the hash threads, the threads that read drained
///   files, the engine.
/// Threads: any.
class BlockingFilesystem final : public Filesystem {
 public:
  struct Parts {
    std::vector<std::unique_ptr<transport::Endpoint>> endpoints;
    transport::Endpoint* control = nullptr;  ///< one of `endpoints`, or `control_only`
    /// Set when the manager needs an endpoint that carries no data.
    std::unique_ptr<transport::Endpoint> control_only;
    std::string host_token;
  };
  /// Connects over endpoints that exist already; for connect() and for tests.
  static Result<std::unique_ptr<Filesystem>> connect_over(const Options& options, Clock& clock,
                                                          Parts parts);
  ~BlockingFilesystem() override;

  void set_cache_events(CacheEvents events) override;
  msg::PoolConfig config() const override;
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
  Result<std::unique_ptr<File>> open(FileId file, OpenFlags flags) override;
  Result<std::unique_ptr<File>> open_version(FileId file, Version version) override;
  Result<std::unique_ptr<File>> create(FileId parent, std::string_view name, OpenFlags flags,
                                       Owner owner) override;
  Result<std::pair<Attributes, ChunkMap>> map(FileId file) override;
  Result<std::vector<msg::BenefactorInfo>> benefactors() override;
  Result<msg::DrainNow::Reply> drain(FileId below) override;
  Result<std::vector<msg::ListAborted::Entry>> aborted() override;
  Result<Figures> figures(Duration longest) override;
  Result<msg::Reply> ask(msg::Request request) override;
  /// Waits until `version` of the file has all its copies. The deadline starts anew whenever copies
  /// are made. Must be called without the lock.
  Status wait_redundant(FileId file, Version version);

  Engine& engine() { return *engine_; }
  CloseMode close_mode() const { return options_.close_mode; }
  const std::shared_ptr<WindowBufferOwner>& buffer_owner() const { return buffer_owner_; }

  /// Calls `step` with the lock held until it returns anything but kWouldBlock, or until the
  /// deadline.
  Status wait(Lock& lock, Time deadline, const std::function<Status()>& step);
  Time deadline() const;

 private:
  BlockingFilesystem(const Options& options, Clock& clock, Parts parts);
  Status start();
  template <class R>
  Result<typename R::Reply> ask_for(R request);
  Result<std::unique_ptr<File>> open_session(msg::OpenSession request, OpenFlags flags);
  Status wait_for_early_close(FileId file);
  Result<std::unique_ptr<File>> open_writer(FileId file, OpenFlags flags);
  Result<std::unique_ptr<File>> open_reader(FileId file);
  Result<std::unique_ptr<File>> opened(Lock& lock, std::unique_ptr<OpenFile> reader, Time started);
  Result<std::unique_ptr<File>> share(Lock& lock, const SessionPtr& session, OpenFlags flags,
                                      Time started);
  void note_name(FileId file, std::string_view name);
  void remember(FileId parent, std::string_view name, const Attributes& attributes);
  void forget(FileId parent, std::string_view name, FileId file);
  template <class Reply>
  Result<Attributes> made(FileId parent, std::string_view name, const Result<Reply>& reply);
  Attributes seen(Attributes attributes);
  void look_ahead(FileId directory, std::string_view after);

  const Options options_;
  Clock& clock_;
  Parts parts_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<FileThreads> files_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<WindowBufferOwner> buffer_owner_;
  /// Files that were seen under a name A.Ni.Tj: their fsync does not commit. Guarded by the lock.
  std::unordered_set<FileId> images_;
  LookAhead look_ahead_;  ///< guarded by the lock
  std::thread thread_;
};

}  // namespace stdchk::client
