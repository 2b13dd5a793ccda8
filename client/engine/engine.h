#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/api/figures.h"
#include "client/api/filesystem.h"
#include "client/engine/chunk_hasher.h"
#include "client/engine/client_state.h"
#include "client/engine/lease_holder.h"
#include "client/engine/lock_keeper.h"
#include "client/engine/session_opener.h"
#include "client/engine/session_services.h"
#include "client/engine/session_table.h"
#include "client/engine/work_queue.h"
#include "client/net/manager_client.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/file_threads.h"
#include "client/read/version_map.h"
#include "core/base/executor.h"
#include "core/runtime/reactor.h"
#include "transport/transport.h"

namespace stdchk::client {

/// An Engine is the client library without threads of its own. It has all that happens on the
/// reactor, and the state that applications' threads share with the reactor under one lock
/// (client/net/shared.h).
///
/// No function blocks. A function that would have to wait returns kWouldBlock or a Completion.
/// Shared::changed signals when to call again. BlockingFilesystem waits on threads; a simulator
/// runs the reactor instead.
///
/// Owns: the link to the manager, the links to benefactors, the window, the cache, the sessions.
///   Not the reactor, not the endpoints (the caller adds them to the reactor), not the executors.
///   `files` reads drained files: such reads may hang and must not delay the work of `executor`.
/// Threads: stated at each group of functions.
class Engine final : private ManagerListener {
 public:
  struct Config {
    std::string manager_address;
    std::string role = "library";
    std::string host_token;
    std::string host_name;
    std::int64_t pid = 0;
    std::uint64_t window_bytes = 0;    ///< 0: limits::kWindowBytesDefault
    std::uint64_t cache_bytes = 0;     ///< 0: a quarter of the window
    std::optional<Naming> naming;      ///< unset: the pool's setting
    std::optional<bool> content_cuts;  ///< unset: the pool's setting
    std::uint32_t chunk_bytes = 0;     ///< 0: the pool's setting
    SessionOpener::Config sessions;
    ChunkHasher::Config encryption;
  };
  Engine(Reactor& reactor, transport::Endpoint& control, std::vector<transport::Endpoint*> data,
         Executor& executor, FileExecutor& files, Config config);
  ~Engine() override;

  // ---- reactor's thread, without the lock
  /// Registers with the manager. registration().ready is done when the engine can be used.
  void start();
  /// Ends all sessions: commits under way continue, all other sessions are aborted. idle() becomes
  /// true when no session is left.
  void begin_stop();
  /// Tells the manager that this client ends.
  void say_goodbye() { manager_.stop(); }
  /// Closes all links. Afterwards only the destructor may be called; the reactor may still turn.
  void close_links();
  Figures figures();

  // ---- any thread, without the lock
  Shared& shared() { return shared_; }
  Clock& clock() { return reactor_.clock(); }
  ChunkHasher& hasher() { return hasher_; }
  /// Returns a token. Figures::reader_count counts the holders of tokens.
  std::shared_ptr<const void> counted_reader() const { return readers_; }

  // ---- any thread, lock held
  /// The manager's answer to this client, and the state of the link.
  const ClientState::Registration& registration() const STDCHK_REQUIRES(engine_lock) {
    return state_.registration;
  }
  bool idle() const STDCHK_REQUIRES(engine_lock) { return sessions_.empty(); }
  const msg::PoolConfig& config() const STDCHK_REQUIRES(engine_lock) {
    return state_.registration.pool;
  }
  ClientId client() const STDCHK_REQUIRES(engine_lock) { return state_.registration.client; }
  ClientState::Counts& counts() STDCHK_REQUIRES(engine_lock) { return state_.counts; }
  MetadataCache& metadata() STDCHK_REQUIRES(engine_lock) { return state_.metadata; }
  MapStore& maps() STDCHK_REQUIRES(engine_lock) { return maps_; }
  Reader& reader() STDCHK_REQUIRES(engine_lock) { return *state_.buffers.reader; }
  Window& window() STDCHK_REQUIRES(engine_lock) { return *state_.buffers.window; }
  SessionTable& sessions() STDCHK_REQUIRES(engine_lock) { return sessions_; }
  LockKeeper& locks() STDCHK_REQUIRES(engine_lock) { return locks_; }
  LeaseLink& leases() { return leases_; }
  void set_events(CacheEvents events) STDCHK_REQUIRES(engine_lock) {
    events_ = std::make_shared<CacheEvents>(std::move(events));
  }

  /// Sends a request. `done` runs on the reactor's thread without the lock. A request about a file
  /// without a version waits until a restarted manager knows that file again. See
  /// ManagerClient::call for `late` and `may_go`.
  void call(msg::Request request, std::function<void(rpc::Answer)> done,
            std::function<void(rpc::Answer)> late = {}, std::function<bool()> may_go = {})
      STDCHK_REQUIRES(engine_lock) {
    leases_.send_changes();
    if (!may_go) may_go = leases_.may_go();
    queue_.call({std::move(request), std::move(done), std::move(may_go), std::move(late)});
  }
  using Opening = SessionOpener::Opening;
  /// Opens a session; see SessionOpener::open().
  std::shared_ptr<Opening> open_session(msg::OpenSession request,
                                        std::function<void(const Attributes&)> on_answer = {})
      STDCHK_REQUIRES(engine_lock) {
    const Naming naming = state_.registration.pool.naming;
    return opener_.open(std::move(request), naming, std::move(on_answer));
  }
  /// Seals the oldest slot that waits for more bytes, if no slot is free and if that helps. Returns
  /// true when that has freed a slot at once: nothing needs its bytes.
  bool relieve_window() STDCHK_REQUIRES(engine_lock);

 private:
  struct Watch {
    TimerId timer;
    bool benefactors_unknown = false;  ///< the last list could not be fetched
  };

  // ManagerListener
  void on_registered(const msg::RegisterClient::Reply& reply, bool same) override;
  void on_invalidate(const msg::Invalidate& notice) override;
  msg::WriterTotals writer_totals() override;
  msg::ReaderTotals reader_totals() override;
  std::uint64_t reader_count() override {
    return static_cast<std::uint64_t>(readers_.use_count() - 1);
  }

  void watch_manager();
  void take_settings(const msg::PoolConfig& pool) STDCHK_REQUIRES(engine_lock);
  void forget_registration(bool same_epoch) STDCHK_REQUIRES(engine_lock);
  Status make_buffers(const msg::PoolConfig& pool);
  std::unique_ptr<Reader> make_reader(std::vector<transport::Endpoint*> data,
                                      std::unique_ptr<Memory> memory) STDCHK_REQUIRES(engine_lock);
  void ask_benefactors() STDCHK_REQUIRES(engine_lock);
  void on_benefactors(const std::vector<msg::BenefactorInfo>& benefactors);
  void pump();
  void send(std::vector<Work::Call> calls);
  void start_reads(const std::vector<Transfer*>& transfers);

  Reactor& reactor_;
  const std::vector<transport::Endpoint*> data_;
  Executor& executor_;
  FileExecutor& files_;
  const Config config_;
  Shared shared_;
  const std::shared_ptr<const void> readers_ = std::make_shared<int>();
  ClientState state_ STDCHK_GUARDED_BY(engine_lock);
  MapStore maps_;
  std::shared_ptr<CacheEvents> events_ STDCHK_GUARDED_BY(engine_lock) =
      std::make_shared<CacheEvents>();
  WorkQueue queue_;
  SessionTable sessions_;
  SessionServices services_;
  SessionOpener opener_;
  LockKeeper locks_;
  ChunkHasher hasher_;
  LeaseLink leases_;
  Watch watch_;  ///< reactor's thread
  Peers peers_;
  ManagerClient manager_;
};

}  // namespace stdchk::client
