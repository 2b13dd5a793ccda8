#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/api/filesystem.h"
#include "client/blocking/blocking_names.h"
#include "client/blocking/window_buffers.h"
#include "client/engine/engine.h"
#include "core/base/executor.h"
#include "core/runtime/reactor.h"
#include "transport/transport.h"

namespace stdchk::client {

class BlockingFile;

/// A BlockingFilesystem gives an Engine its threads, and opens files.
///
/// Owns: the endpoints, the reactor and its thread, the hash threads, the threads that read drained
///   files, the engine.
/// Threads: any.
class BlockingFilesystem final : public BlockingNames {
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
  Result<std::unique_ptr<File>> open(FileId file, OpenFlags flags) override;
  Result<std::unique_ptr<File>> open_version(FileId file, Version version) override;
  Result<std::unique_ptr<File>> create(FileId parent, std::string_view name, OpenFlags flags,
                                       Owner owner) override;
  Result<Figures> figures(Duration longest) override;

  CloseMode close_mode() const { return options_.close_mode; }
  const std::shared_ptr<WindowBufferOwner>& buffer_owner() const { return buffer_owner_; }

 private:
  BlockingFilesystem(const Options& options, Clock& clock, Parts parts);
  Status start();
  Result<std::unique_ptr<File>> open_session(msg::OpenSession request, OpenFlags flags);
  Status wait_for_early_close(FileId file);
  Result<std::unique_ptr<File>> create_at_manager(FileId parent, std::string_view name,
                                                  OpenFlags flags, Owner owner);
  Result<std::unique_ptr<File>> open_existing(FileId file, OpenFlags flags);
  Result<std::unique_ptr<File>> open_writer(FileId file, OpenFlags flags);
  Result<std::unique_ptr<File>> open_reader(FileId file);
  Result<std::unique_ptr<File>> opened(Lock& lock, std::unique_ptr<BlockingFile>& reader)
      STDCHK_REQUIRES(engine_lock);
  Result<std::unique_ptr<File>> share(Lock& lock, const SessionPtr& session, OpenFlags flags,
                                      Time started) STDCHK_REQUIRES(engine_lock);

  const Options options_;
  Parts parts_;
  std::unique_ptr<Reactor> reactor_;
  std::unique_ptr<ThreadExecutor> executor_;
  std::unique_ptr<FileThreads> files_;
  std::shared_ptr<WindowBufferOwner> buffer_owner_;
  std::thread thread_;
};

}  // namespace stdchk::client
