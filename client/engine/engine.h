#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "client/api/figures.h"
#include "client/api/filesystem.h"
#include "client/engine/metadata_cache.h"
#include "client/engine/name_cache.h"
#include "client/net/manager_client.h"
#include "client/net/memory.h"
#include "client/net/peers.h"
#include "client/net/shared.h"
#include "client/read/file_threads.h"
#include "client/read/reader.h"
#include "client/read/version_map.h"
#include "client/write/series_naming.h"
#include "client/write/session.h"
#include "client/write/window.h"
#include "core/base/executor.h"
#include "core/chunk/content_tag.h"
#include "core/chunk/naming.h"
#include "core/chunk/sealed_chunk.h"
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
class Engine final : private SessionHost, private ManagerListener {
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
    std::uint64_t naming_judged_bytes = SeriesNaming::kJudgedBytes;
    std::uint32_t copies = 0;  ///< number of a Redundancy; 0: the folder's or the pool's setting
    bool waits_for_copies = false;  ///< closes wait for all copies, whatever the folder says
    std::optional<Secret> key;      ///< the key for encrypted chunks
    bool encrypts = false;          ///< encrypt what is written; needs the key
  };
  Engine(Reactor& reactor, transport::Endpoint& control, std::vector<transport::Endpoint*> data,
         Executor& executor, FileExecutor& files, Config config);
  ~Engine() override;

  // ---- reactor's thread, without the lock
  /// Registers with the manager. ready() is done when the engine can be used.
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
  Shared& shared() override { return shared_; }
  /// Computes the CRC of a chunk, unless the chunk has it already.
  static void checksum(OutChunk& chunk);

  // ---- any thread, lock held
  const CompletionPtr& ready() const { return ready_; }
  bool idle() const { return sessions_.empty(); }
  const msg::PoolConfig& config() const { return pool_; }
  MetadataCache& metadata() { return metadata_; }
  MapStore& maps() override { return maps_; }
  Reader& reader() { return *reader_; }
  Window& window() override { return *window_; }
  Clock& clock() override { return reactor_.clock(); }
  bool names_chunks() const override { return pool_.naming != Naming::kOff; }
  bool content_cuts() const override { return pool_.content_cuts; }
  bool encrypts() const { return config_.encrypts; }
  bool manager_lost() const { return !manager_up_; }
  Error manager_error() const { return manager_error_; }
  ClientId client() const override { return client_; }
  msg::WriterTotals& totals() override { return totals_; }
  /// A token; whoever holds it counts as one reader in Figures::reader_count.
  std::shared_ptr<const void> counted_reader() const { return readers_; }
  void set_events(CacheEvents events) {
    events_ = std::make_shared<CacheEvents>(std::move(events));
  }

  /// Sends a request. `done` runs on the reactor's thread without the lock. A request about a file
  /// without a version waits until a restarted manager knows that file again. See
  /// ManagerClient::call for `late`.
  void call(msg::Request request, std::function<void(rpc::Answer)> done,
            std::function<void(rpc::Answer)> late = {});
  /// The session in which this process writes `file`; nullptr: none. The session may be ending.
  SessionPtr session(FileId file) const;
  struct Opening {
    std::optional<Status> status;
    SessionPtr session;  ///< counts this opener already
    bool created = false;
    Attributes attributes;
  };
  /// Opens a session. A caller that drops the result before `status` is set has given up; the
  /// engine then closes the session.
  std::shared_ptr<Opening> open_session(msg::OpenSession request);
  /// Returns, once, why an early close of the file has lost its commit.
  std::optional<Error> take_lost(FileId file);
  bool has_lost() const { return !lost_.empty(); }
  /// Counts a writer's wait for a free slot.
  void waited_for_window(Duration time) {
    ++window_waits_;
    window_waited_ += time;
  }
  /// Computes the CRC of a chunk, with the lock released, and passes the chunk on to be placed.
  /// Does nothing for nullptr.
  void finish_checksum(Lock& lock, OutChunkPtr chunk);
  /// Seals the oldest slot that waits for more bytes, if no slot is free and if that helps.
  void relieve_window();

 private:
  // SessionHost
  const Memory& window_memory() override { return *window_memory_; }
  std::uint64_t arena_bytes_total() const override { return arena_bytes_total_; }
  bool answers(BenefactorId benefactor) const override { return answering_.contains(benefactor); }
  void kick(Session& session) override;
  void kick_after(Session& session, Duration delay) override;
  void committed(const msg::Commit::Reply& reply) override;
  void ended(Session& session) override;
  void promise_broken(const Session& session) override;
  // ManagerListener
  void on_registered(const msg::RegisterClient::Reply& reply, bool same) override;
  void on_invalidate(const msg::Invalidate& notice) override;
  msg::WriterTotals writer_totals() override;
  msg::ReaderTotals reader_totals() override;
  std::uint64_t reader_count() override {
    return static_cast<std::uint64_t>(readers_.use_count() - 1);
  }

  Status make_buffers();
  void ask_benefactors();
  void on_benefactors(const std::vector<msg::BenefactorInfo>& benefactors);
  void opened_late(const rpc::Answer& answer);
  void close_unused(SessionId session);
  void on_opened(Opening& opening, const msg::OpenSession& request,
                 std::shared_ptr<SeriesNaming> naming, rpc::Answer answer);
  SessionPtr pending(FileId parent, std::string_view name) const;
  SessionPtr pending_of(const msg::Request& request) const;
  void follow_pending(Work::Call& call);
  void note_pending(const msg::Request& request, const msg::Reply& reply);
  void wake();
  void pump();
  void start_reads(const std::vector<Transfer*>& transfers);
  void search_later(Work::Search search);
  void hash_later(std::vector<OutChunkPtr> chunks);
  void hash(std::vector<OutChunkPtr> chunks);
  void name(Lock& lock, std::span<const OutChunkPtr> chunks);
  void seal(OutChunk& chunk) const;
  std::shared_ptr<SeriesNaming> series_of(const msg::OpenSession& request);
  void watch_manager();

  Reactor& reactor_;
  const std::vector<transport::Endpoint*> data_;
  Executor& executor_;
  FileExecutor& files_;
  const Config config_;
  Shared shared_;
  CompletionPtr ready_ = std::make_shared<Completion>();
  msg::PoolConfig pool_;
  bool manager_up_ = false;
  Error manager_error_{Code::kManagerLost, 0, "client.manager"};
  ClientId client_;
  Epoch epoch_;
  msg::WriterTotals totals_;
  std::uint64_t recognised_bytes_ = 0;
  const std::shared_ptr<const void> readers_ = std::make_shared<int>();
  std::uint64_t window_waits_ = 0;
  Duration window_waited_{};
  std::uint64_t arena_bytes_total_ = 0;
  std::set<BenefactorId> known_benefactors_;
  std::set<BenefactorId> answering_;  ///< those of known_benefactors_ that are alive
  MetadataCache metadata_;
  MapStore maps_;
  std::unique_ptr<Memory> window_memory_;
  std::unique_ptr<Window> window_;
  std::unique_ptr<Reader> reader_;
  std::shared_ptr<CacheEvents> events_ = std::make_shared<CacheEvents>();
  std::map<FileId, SessionPtr> sessions_;
  std::map<std::pair<FileId, std::string>, std::shared_ptr<SeriesNaming>> series_;
  std::map<SessionId, SessionPtr> sessions_by_id_;
  std::map<FileId, Error> lost_;  ///< errors of early closes that no open has reported yet

  // Work for pump(). `woken_`: pump() is posted already.
  bool woken_ = false;
  bool wake_failed_ = false;  ///< the reactor's queue was full; watch_manager() sees to the work
  std::vector<SessionPtr> kicked_;
  std::vector<Work::Call> outbox_;
  std::vector<Transfer*> transfers_;
  std::vector<std::function<void()>> executor_work_;
  std::vector<FileWork> file_work_;
  std::vector<std::unique_ptr<Namer>> namers_;  ///< idle ones
  const ContentTagger tagger_;
  NameCache names_;
  std::optional<ChunkSealer> sealer_;  ///< set when there is a key

  TimerId watch_;
  bool benefactors_unknown_ = false;  ///< the last list could not be fetched; reactor's thread
  Peers peers_;
  ManagerClient manager_;
};

}  // namespace stdchk::client
