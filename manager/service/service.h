#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "core/policy/image_name.h"
#include "core/policy/topology.h"
#include "core/runtime/reactor.h"
#include "manager/journal/journal.h"
#include "manager/pool/ledger.h"
#include "manager/pool/membership.h"
#include "manager/pool/replaced_files.h"
#include "manager/pool/request_counts.h"
#include "manager/pool/sessions.h"
#include "manager/replication/failure_domains.h"
#include "manager/space/audit.h"
#include "manager/space/extent_checks.h"
#include "manager/space/space.h"
#include "manager/state/state.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::manager {

class Compactor;
class CopyPlanner;
class DrainChecks;
class DrainPlanner;
class Evictor;
class GarbageCollector;
class LogKeepers;
class ParityPlanner;
class SetKeeper;
class Scrubber;

struct Config {
  /// The default has no members, so the service closes every link.
  Membership membership;
  Policy policy;  ///< for folders without settings
  /// A chunk_bytes or stripe_width of 0 means the default.
  msg::PoolConfig pool;
  Topology topology;                         ///< failure domains wider than a host
  std::uint64_t copy_rate_bytes_per_s = 0;   ///< to each benefactor; 0: unlimited
  std::uint64_t scrub_rate_bytes_per_s = 0;  ///< of each benefactor; 0: scrubs only on request
  Duration gc_period{};  ///< between rounds of the garbage collection; 0: only on request
  std::uint64_t drain_total_bytes_per_s = 0;  ///< all benefactors together; 0: unlimited
  bool drain_yields = false;                  ///< the drain slows down while clients write
  /// Address of the standby that this manager had before a restart; empty: none. The manager
  /// answers no request before it hears from this standby.
  std::string standby;
  /// Called when a standby begins to follow. Must store the address durably, so that `standby` is
  /// set at the next start. Returns false when it cannot.
  std::function<bool(const std::string& address)> remember_standby;
  std::function<void(const Error&)> on_journal_failure;  ///< called once; the process should end
  /// A later manager has that epoch; the process should end.
  std::function<void(Epoch)> on_superseded;
  /// The journal has lost its end; the argument says how. The process should end.
  std::function<void(const std::string&)> on_damaged;
};

/// A benefactor as the manager sees it now.
struct BenefactorStatus {
  msg::BenefactorInfo info;
  transport::secure::Member member;  ///< that registered as this
  rpc::Peer* peer = nullptr;
  Time last_heard{};
  bool leaving = false;             ///< it has asked to leave the pool
  std::uint64_t log_bytes_max = 0;  ///< size of the largest metadata log that it can store
};

/// A Call represents a request until its answer. Copies share the request; only
/// the first answer counts.
class Call {
 public:
  /// The request counters that the answer updates.
  struct Counted {
    std::shared_ptr<RequestCounts> counts;
    Clock* clock = nullptr;
    std::size_t kind = 0;
    Time began{};
  };
  Call(rpc::Responder respond, std::uint64_t call_id, Time deadline, Counted counted)
      : shared_(std::make_shared<Shared>(std::move(respond), std::move(counted))),
        call_id_(call_id),
        deadline_(deadline) {}
  /// Registers the call, so that repeats get the same answer. Returns false when this call is
  /// itself a repeat; then its answer is taken care of.
  bool first_in(const std::shared_ptr<RecentReplies>& replies) {
    if (replies->begin(call_id_, shared_->respond) != RecentReplies::Seen::kNew) return false;
    replies_ = replies;
    return true;
  }
  void answer(rpc::Answer answer) const;
  void fail(const Error& error, std::string detail = {}) const;
  void fail(Code code, const char* where, std::string detail = {}) const {
    fail(Error{code, 0, where}, std::move(detail));
  }
  Time deadline() const { return deadline_; }
  std::uint64_t id() const { return call_id_; }

 private:
  struct Shared {
    Shared(rpc::Responder to, Counted what) : respond(std::move(to)), counted(std::move(what)) {}
    rpc::Responder respond;
    Counted counted;
  };
  std::shared_ptr<Shared> shared_;
  std::weak_ptr<RecentReplies> replies_;
  std::uint64_t call_id_;
  Time deadline_;
};

/// A Service runs the manager. It validates and authorises requests, turns them into commands and
/// answers when these are durable. It also drives leases, fences, the drain and all planners.
///
/// Owns: the state, soft state, and the links that peers opened. Not the journal.
/// Threads: the reactor's.
/// Errors: every change is answered kReadOnly after the journal fails, has turned out to have lost
/// its end, or a later manager has taken over. Then the process should end.
class Service final : public transport::AcceptHandler {
 public:
  Service(Reactor& reactor, Journal& journal, Config config);
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Loads the journal, begins a new epoch, and accepts links from now on.
  Status start();
  /// Closes all links and lets the journal finish.
  void stop();

  void on_accept(std::unique_ptr<transport::Link> link) override;

  // For the planners and tests.
  Reactor& reactor() { return reactor_; }
  const State& state() const { return state_; }
  Space& space() { return space_; }
  const Config& config() const { return config_; }
  Time now() const { return reactor_.clock().now(); }
  bool has_drain() const { return !config_.pool.drain_directory.empty(); }
  const std::map<BenefactorId, BenefactorStatus>& benefactors() const { return benefactors_; }
  bool journal_failed() const { return journal_failed_; }
  /// Answers clients that waited for benefactors to store the metadata, if they may proceed now.
  void let_clients_in();
  /// The number of commands of this start so far.
  std::uint64_t appended() const { return appended_; }
  /// How many of these commands are durable.
  std::uint64_t durable() const { return durable_; }
  const LogKeepers& log_keepers() const { return *logs_; }
  /// Applies the command now and journals it. Calls `done` when it is durable or has failed.
  void execute(Command command, std::function<void(const Result<Outcome>&)> done);
  /// Returns true for a copy that readers may use: its benefactor is not gone, and it is not known
  /// to be wrong.
  bool live(const Extent& extent) const;
  bool live(ChunkIndex chunk) const;
  /// Returns true for a live copy on a benefactor that is connected and alive.
  bool at_hand(const Extent& extent) const;
  /// Nobody is waited for: all benefactors are here, or are not expected back.
  bool benefactors_settled() const {
    return std::ranges::none_of(benefactors_, [](const auto& each) {
      return each.second.info.state == msg::BenefactorState::kSilent;
    });
  }
  /// It is not known, or was silent for so long that it is not expected back.
  bool is_gone(BenefactorId benefactor) const;
  /// Returns true when clients of earlier epochs can no longer write there.
  bool is_fenced(BenefactorId benefactor) const { return fenced_.count(benefactor) > 0; }
  /// Returns true when at_hand() is true for one of the copies.
  bool at_hand(const std::vector<Extent>& copies) const;
  /// Returns true when enough members of its stripe are live to reconstruct the chunk.
  bool can_be_made(ChunkIndex chunk) const;
  Status pin(FileId file, Version version) { return state_.pin(file, version); }
  void unpin(FileId file, Version version);
  void set_older_aside(FileId file, std::uint64_t number) { state_.set_older_aside(file, number); }
  void hold(ChunkIndex chunk);
  void release(ChunkIndex chunk);
  /// The holds of planners, for callers that recount references.
  const std::map<ChunkIndex, std::uint32_t>& held() const { return held_; }
  /// Calls `visit(chunk)` for each hold of a session (rule M4).
  template <class Visit>
  void for_each_session_hold(Visit visit) const {
    for (const auto& [id, session] : sessions_) {
      for (const ChunkIndex chunk : session.holds) visit(chunk);
    }
  }
  /// The claims on all ranges of all arenas.
  std::vector<Claim> claims() const;
  /// Like claims(), without those of chunks.
  std::vector<Claim> claims_beside_chunks() const;
  std::uint64_t arena_bytes(BenefactorId benefactor) const {
    return space_.arena_bytes(benefactor);
  }
  CopyPlanner& copies() { return *copies_; }
  ParityPlanner& parity() { return *parity_; }
  const FailureDomains& domains() const { return domains_; }
  std::vector<ChunkIndex> take_thinned() { return state_.take_thinned(); }
  Scrubber& scrubber() { return *scrubber_; }
  GarbageCollector& garbage() { return *garbage_; }
  /// Returns true when a session has grants.
  bool writing() const { return writers_ > 0; }
  /// The time of the last grant.
  Time granted_last() const { return granted_last_; }
  /// Returns true while sessions of an earlier epoch may still be resumed.
  bool resuming() const { return resume_until_ != Time{}; }
  /// Counts, for each file, pins by sessions that have truncated the file and not committed yet.
  /// These sessions need the version, but no bytes of it.
  std::unordered_map<FileId, std::uint32_t> pins_without_bytes() const;
  /// See Evictor.
  bool evict(std::uint64_t want_bytes);
  /// Returns a connected benefactor, a different one each time.
  std::optional<BenefactorId> some_benefactor();
  /// Returns an id that was never used: its upper bits are the epoch.
  std::uint64_t next_id() { return (state_.epoch().value << 40) | ++last_id_; }
  static Epoch epoch_of(ClientId client) { return Epoch{client.value >> 40}; }
  /// Returns true when the command that made this change of the mirror queue is durable.
  bool mirror_is_durable(std::uint64_t change);
  rpc::Peer* peer_of(BenefactorId benefactor);
  /// Returns the policy in force: settings of the file's folders, then the pool's.
  Policy policy(const File& file) const;
  bool session_open(FileId file) const { return users_.count(file) > 0; }
  /// Has this file drained before others.
  void drain_first(FileId file);
  DrainChecks& drain_checks() { return *drain_checks_; }
  /// Returns true when the drain directory may have the file's content under another name just now.
  bool moves_in_drain(const File& file) const;
  /// Returns the path, in the drain directory, of the bytes that memory lacks; nothing while that
  /// path is changing. A client that opens this path, and then gets the same path again, has the
  /// right file.
  std::optional<std::string> drained_path(const File& file, const VersionData& version) const;
  SetKeeper& set_keeper() { return *sets_; }
  /// Tells clients that may have cached the entry, except `except`, and the
  /// SetKeeper of its folder.
  void entry_changed(FileId directory, const std::string& name, ClientId except);
  void file_changed(FileId file, ClientId except);
  /// Retries requests that wait for the drain directory.
  void retry_maps();
  /// The state and activity of the pool. Cost: walks over all files and chunks that need work.
  msg::StatPool::Reply statistics() const;
  std::vector<msg::BenefactorInfo> benefactor_list() const;
  /// A benefactor that another one is to read from, as `reader`, under that number.
  msg::BenefactorInfo source(BenefactorId source, BenefactorId reader, ClientId number) const;
  const RequestCounts& request_counts() const { return *request_counts_; }
  /// Bytes granted to sessions and not committed.
  std::uint64_t granted_bytes() const;
  std::size_t grant_count() const;
  std::uint64_t quarantined_bytes() const;
  std::size_t aborted_count() const { return aborted_.size(); }
  std::uint64_t conflict_count() const { return conflicts_; }
  /// Returns true when an undrained image depends on one benefactor. Either its policy asks for one
  /// copy, or not all wanted copies or parity exist yet.
  bool at_risk();
  /// Expires when the service stops: callbacks check it first.
  std::weak_ptr<int> alive() const { return alive_; }

 private:
  friend class Connection;

  // service.cpp: start, time, journal
  void tick();
  void settle_freed();
  void on_durable(std::uint64_t sequence, const Status& status);
  void when_durable(std::function<void()> call);
  void take_snapshot();
  template <class MakeReply>
  void change(Command command, const Call& call, MakeReply make_reply);
  Attributes attributes(const File& file, const VersionData& version) const;
  Attributes attributes(const File& file) const { return attributes(file, file.newest); }
  std::uint32_t names_of(FileId file) const;
  /// Returns attributes without an id when the file does not exist any more.
  Attributes attributes_of(FileId id) const {
    const File* file = state_.file(id);
    return file == nullptr ? Attributes{} : attributes(*file);
  }

  // service_requests.cpp
  void serve(class Connection& connection, msg::RequestEnvelope envelope, Time deadline,
             rpc::Responder respond);
  template <class M>
  void handle(Connection& connection, M& request, const Call& call);
  template <class M>
  void serve_again(ClientRecord& client, const M& request, const Call& call);
  template <class M>
  rpc::Answer answer_again(ClientRecord& client, const M& request);
  template <class M>
  rpc::Answer attributes_again(const File* file) const;
  FileId drop_resumed(ClientRecord& client, const msg::Remove& request);

  // service_members.cpp
  void register_client(Connection& connection, msg::RegisterClient request, const Call& call);
  void register_benefactor(Connection& connection, msg::RegisterBenefactor request,
                           const Call& call);
  struct Known {
    Epoch epoch;
    /// A record of that epoch that the peer's answer relied on; 0: none.
    std::uint64_t sequence = 0;
    bool told = false;  ///< the peer has spoken with this manager before
  };
  bool outdated(const Known& known, const Call& call);
  std::string damage(const Known& known) const;
  bool calls_roll() const { return roll_call_until_ != Time{}; }
  void end_roll_call();
  BenefactorId benefactor_of(const msg::RegisterBenefactor& request) const;
  void follow(const msg::FollowManager& request, const Call& call);
  void admit_benefactor(Connection& connection, BenefactorId id,
                        const msg::RegisterBenefactor& request, const Call& call);
  void let_go(BenefactorId id, const Call& call);
  msg::BenefactorHeartbeat::Reply heartbeat_reply(BenefactorId id, bool may_go) const;
  std::vector<msg::BenefactorInfo> benefactor_list_for(const Connection& connection) const;
  void closed(Connection& connection);
  void end_client(ClientId id, bool clean);
  void excuse_own_pause();
  void check_leases();
  void fence(BenefactorId benefactor, ClientId client, bool and_older);
  void run_fences();
  void end_grace();
  bool waits_for_keepers() const;
  void look_at_durable();
  bool is_stuck() const;
  void benefactors_changed();
  msg::Invalidate* invalidate_of(ClientId client);
  void flush_invalidates();
  void use(FileId file, ClientId client);
  void unuse(FileId file, ClientId client);

  // service_names.cpp
  void serve(ClientRecord& client, const msg::Lookup& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetAttributes& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReadDirectory& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetAttributes& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeDirectory& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeSymlink& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeNode& request, const Call& call);
  void serve(ClientRecord& client, const msg::MakeLink& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReadSymlink& request, const Call& call);
  void serve(ClientRecord& client, const msg::Remove& request, const Call& call);
  void serve(ClientRecord& client, const msg::Rename& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetXattr& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetXattrs& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetPolicy& request, const Call& call);
  void serve(ClientRecord& client, const msg::SetPolicy& request, const Call& call);
  void serve(ClientRecord& client, const msg::ListSets& request, const Call& call);
  void serve(ClientRecord& client, const msg::StatPool& request, const Call& call);
  void list_benefactors(const Connection& connection, const Call& call) const;
  void serve(ClientRecord& client, const msg::ListAborted& request, const Call& call);
  void serve(ClientRecord& client, const msg::DrainNow& request, const Call& call);
  void serve(ClientRecord& client, const msg::ConfirmDrained& request, const Call& call);
  void confirm(const msg::ConfirmDrained& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetDebt& request, const Call& call);
  void serve(ClientRecord& client, const msg::Scrub& request, const Call& call);
  void serve(ClientRecord& client, const msg::CheckMetadata& request, const Call& call);
  void serve(ClientRecord& client, const msg::CollectGarbage& request, const Call& call);
  void serve(ClientRecord& client, const msg::ClientHeartbeat& request, const Call& call);
  void serve(ClientRecord& client, const msg::GoodbyeClient& request, const Call& call);

  // service_sessions.cpp
  void serve(ClientRecord& client, const msg::OpenSession& request, const Call& call);
  void serve(ClientRecord& client, const msg::Place& request, const Call& call);
  void serve(ClientRecord& client, msg::Commit& request, const Call& call);
  void serve(ClientRecord& client, const msg::ResumeSession& request, const Call& call);
  void serve(ClientRecord& client, const msg::CloseSession& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetMap& request, const Call& call);
  void serve(ClientRecord& client, const msg::Unpin& request, const Call& call);
  void serve(ClientRecord& client, const msg::ReportWrongCopy& request, const Call& call);
  void serve(ClientRecord& client, const msg::GetStripe& request, const Call& call);
  bool has_stripe(const Chunk& chunk) const;
  Result<const File*> file_to_open(ClientRecord& client, const msg::OpenSession& request,
                                   bool& created);
  void find_similar(const File& file, SessionRecord& session);
  void note_rewriter(SessionRecord& session, const File& file);
  std::uint32_t copies_of(const File& file, std::uint32_t asked) const;
  std::uint32_t places_of(const File& file, std::uint32_t copies, bool waits) const;
  SessionRecord* session_of(const ClientRecord& client, SessionId id, const Call& call);
  void end_session(SessionId id, bool clean);
  void place_when_possible(ClientId client, SessionId id, msg::Place request, const Call& call);
  struct Wanted {
    std::uint64_t bytes = 0;
    std::uint64_t unit_bytes = 0;
    std::vector<BenefactorId> avoid{};
    std::vector<BenefactorId> beside{};
  };
  /// Free bytes and benefactor.
  using Candidates = std::vector<std::pair<std::uint64_t, BenefactorId>>;
  void choose_stripe(SessionRecord& session, const Wanted& wanted);
  Candidates candidates_without(const std::vector<BenefactorId>& avoid) const;
  std::vector<PlaceSet> choose_sets(std::uint32_t places, const Candidates& candidates,
                                    const Wanted& wanted);
  std::vector<BenefactorId> further_places(std::vector<BenefactorId> held, std::uint32_t places,
                                           const Wanted& wanted,
                                           const std::map<BenefactorId, std::size_t>& uses);
  void grant_set(SessionRecord& session, const PlaceSet& set, std::uint64_t want_bytes,
                 std::uint64_t unit, std::vector<Grant>& out);
  std::uint64_t fair_share(const SessionRecord& session) const;
  std::size_t writers_beside(const SessionRecord& session) const;
  std::vector<Grant> grants(SessionRecord& session, const Wanted& wanted);
  std::uint64_t unit_of(std::uint64_t unit_bytes) const;
  void give_back(SessionRecord& session, GrantId grant, bool clean);
  void retry_waiting();
  bool make_room(SessionId asking, std::uint64_t want_bytes, std::uint64_t unit_bytes);

  // service_commit.cpp
  using Carved = std::vector<std::pair<GrantRecord*, Range>>;
  Status resolve(SessionRecord& session, ChunkMap& written, Carved& carved);
  Status resolve_chunk(SessionRecord& session, Chunk& chunk,
                       const std::map<Extent, std::uint32_t>& of_file, Carved& carved);
  std::uint32_t conflicts(const SessionRecord& session, const ChunkMap& written) const;
  void drop_missing(SessionRecord& session, std::vector<Extent>& copies) const;
  static bool note_missing(SessionRecord& session, const std::vector<std::vector<Extent>>& places,
                           const ExtentChecks::Missing& missing);
  bool is_in_doubt(SessionRecord& session);
  void prove(ClientId client, SessionRecord& session, const msg::Commit& request, const Call& call);
  void retry_commits();
  void commit_last(ClientRecord& client, SessionRecord& session, const msg::Commit& request,
                   const Call& call);
  void taint(SessionRecord& session, const std::vector<Extent>& abandoned);
  static std::optional<std::pair<FileId, ImageName>> set_of(const File& file);
  void end_generation(const SessionRecord& session);

  // service_resume.cpp
  struct Resumption {
    Version base = 0;                   ///< the version on which the session is based
    bool ahead = false;                 ///< the file has a newer version
    std::map<Extent, Chunk> of_newest;  ///< chunks of the newest version, by place
    std::uint64_t stored = 0;           ///< chunks that the client has reported
    std::uint64_t committed = 0;        ///< reported chunks that are in the newest version
    std::uint32_t next_part = 0;
    ExtentChecks::Extents to_check;
    std::vector<std::vector<Extent>> places;  ///< the places of to_check, by chunk
  };
  Status check_resumed_name(const msg::ResumeSession& request) const;
  Status remake_pending(const ClientRecord& client, const msg::ResumeSession& request);
  Status take_attributes(const msg::ResumeSession& request);
  Result<const File*> file_to_resume(const ClientRecord& client, const msg::ResumeSession& request);
  Status begin_resume(ClientRecord& client, const msg::ResumeSession& request);
  void note_late_rewriter(const SessionRecord& session);
  bool adds_to_whole(FileId folder, std::string_view name) const;
  Status adopt(SessionRecord& session, Resumption& resumption, const msg::ResumeSession& request);
  void resumed(SessionId id, bool committed, const std::vector<std::vector<Extent>>& places,
               const ExtentChecks::Missing& missing, const Call& call);

  // service_totals.cpp
  void look_at_totals();
  /// Bytes lent by all benefactors that are not gone, and the free bytes among them.
  std::pair<std::uint64_t, std::uint64_t> lent_and_free() const;
  void note_set(const File& file);
  void note_shortage(SessionRecord& session);
  void end_shortage(SessionRecord& session);
  msg::PoolTotals totals() const;

  Reactor& reactor_;
  Journal& journal_;
  Config config_;
  State state_;
  Space space_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();
  TimerId ticker_;
  bool started_ = false;
  bool journal_failed_ = false;
  std::string outdated_;  ///< reason why this manager may change nothing any more, or empty
  std::optional<Time> standby_heard_;
  /// Ids contain the epoch. If a crash lost the epoch, the next start would make the same ids
  /// again. So registrations wait until the epoch is durable.
  bool epoch_durable_ = false;
  std::vector<std::function<void()>> at_epoch_;
  /// Until this time, or until all benefactors in the journal have come, benefactors get no answer.
  /// So the logs of all benefactors are still unchanged if one of them reveals that the journal
  /// lost a record.
  Time roll_call_until_{};
  std::set<BenefactorId> awaited_;
  std::vector<std::function<void()>> at_roll_call_;
  /// New benefactors whose record is not journalled yet, with the callbacks that admit them. A
  /// repeated request comes by another link and so adds a callback.
  std::map<BenefactorId, std::vector<std::function<void(const Result<BenefactorId>&)>>> joining_;
  /// Until this time clients wait for benefactors to store the metadata again: what clients are
  /// answered must survive the loss of this disk.
  Time keepers_until_{};
  std::vector<std::function<void()>> at_keepers_;
  std::uint64_t last_id_ = 0;
  std::uint64_t appended_ = 0;
  std::uint64_t durable_ = 0;
  std::uint64_t durable_before_ = 0;  ///< durable_ at the last tick
  Time ticked_{};                     ///< time of the last tick
  /// Successive ticks without progress of durable_ although commands wait.
  unsigned stuck_ticks_ = 0;
  std::deque<std::pair<std::uint64_t, std::function<void()>>> at_durable_;
  std::uint64_t mirror_newest_ = 0;
  /// Number of a mirrored change -> number of its command.
  std::map<std::uint64_t, std::uint64_t> mirror_appended_;
  /// Extents freed by commands up to a number. They become free space only when these commands are
  /// durable: otherwise a crash could bring back a map whose bytes were overwritten.
  std::deque<std::pair<std::uint64_t, std::vector<FreedExtent>>> to_free_;

  std::uint64_t accepted_ = 0;                                        ///< connections ever accepted
  std::map<std::uint64_t, std::unique_ptr<Connection>> connections_;  ///< by number
  std::deque<std::unique_ptr<Connection>> ended_;  ///< the connection that ended first comes first
  std::map<BenefactorId, BenefactorStatus> benefactors_;
  FailureDomains domains_;
  std::map<ClientId, ClientRecord> clients_;
  std::unordered_map<SessionId, SessionRecord> sessions_;
  std::size_t writers_ = 0;  ///< sessions with grants
  std::unordered_map<FileId, std::map<ClientId, std::uint32_t>> users_;
  Watchers watchers_;
  ReplacedFiles replaced_files_{state_};
  Rewriters rewriters_;
  std::set<ClientId> to_invalidate_;
  bool invalidate_posted_ = false;

  struct Fence {
    bool in_flight = false;
    bool and_older = false;
    Time next{};
  };
  std::map<std::pair<BenefactorId, ClientId>, Fence> fences_;
  std::set<BenefactorId> fenced_;
  /// Until this time clients of earlier epochs may report what they have
  /// stored, and nothing is granted.
  Time resume_until_{};
  /// Sessions whose last part has not arrived yet.
  std::unordered_map<SessionId, Resumption> resumptions_;

  struct Waiting {
    ClientId client;
    SessionId session;
    msg::Place request;
    Call call;
  };
  std::deque<Waiting> waiting_;  ///< requests that wait for space
  struct WaitingCommit {
    ClientId client;
    msg::Commit request;  ///< the last part; SessionRecord::parts has the slices
    Call call;
  };
  std::deque<WaitingCommit> waiting_commits_;  ///< commits that wait for a benefactor to answer
  struct WaitingMap {
    ClientId client;
    msg::GetMap request;
    Call call;
  };
  std::deque<WaitingMap> waiting_maps_;  ///< requests that wait for changes in the drain directory
  struct WaitingConfirm {
    msg::ConfirmDrained request;
    Call call;
  };
  std::deque<WaitingConfirm> waiting_confirms_;  ///< as waiting_maps_
  std::deque<msg::ListAborted::Entry> aborted_;
  std::uint64_t conflicts_ = 0;
  Ledger ledger_;
  std::uint64_t requests_served_ = 0;
  std::shared_ptr<RequestCounts> request_counts_ = std::make_shared<RequestCounts>();
  std::uint64_t last_benefactor_ = 0;
  Time granted_last_{};
  std::unique_ptr<DrainPlanner> drain_;
  std::unique_ptr<DrainChecks> drain_checks_;
  std::unique_ptr<Evictor> evictor_;
  std::unique_ptr<Compactor> compactor_;
  std::unique_ptr<ExtentChecks> checks_;
  std::unique_ptr<SetKeeper> sets_;
  std::unique_ptr<CopyPlanner> copies_;
  std::unique_ptr<ParityPlanner> parity_;
  std::unique_ptr<Scrubber> scrubber_;
  std::unique_ptr<GarbageCollector> garbage_;
  std::unique_ptr<LogKeepers> logs_;
  std::map<ChunkIndex, std::uint32_t> held_;  ///< holds by planners
};

/// A Connection is a link, with the identity of the remote peer.
class Connection final : public rpc::PeerHandler {
 public:
  Connection(Service& service, std::uint64_t number, std::unique_ptr<transport::Link> link)
      : number_(number), service_(service), peer_(service.reactor_, std::move(link), *this) {}
  void on_request(rpc::Peer&, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override {
    service_.serve(*this, std::move(request), deadline, std::move(respond));
  }
  void on_closed(rpc::Peer&, Error) override { service_.closed(*this); }

  rpc::Peer& peer() { return peer_; }
  transport::secure::Member member() const { return Membership::member_at(peer_.link()); }
  /// Unique among all connections that this manager ever accepts.
  std::uint64_t number() const { return number_; }
  ClientId client;          ///< none: no registered client
  BenefactorId benefactor;  ///< none: no registered benefactor

 private:
  const std::uint64_t number_;
  Service& service_;
  rpc::Peer peer_;
};

template <class MakeReply>
void Service::change(Command command, const Call& call, MakeReply make_reply) {
  execute(std::move(command), [call, make_reply](const Result<Outcome>& outcome) {
    if (outcome) {
      call.answer(make_reply(*outcome));
    } else {
      call.fail(outcome.error());
    }
  });
}

}  // namespace stdchk::manager
