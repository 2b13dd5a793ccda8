#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "benefactor/copies/copier.h"
#include "benefactor/copies/job_counts.h"
#include "benefactor/copies/stripe_builder.h"
#include "benefactor/drain/drainer.h"
#include "benefactor/memory/arena.h"
#include "benefactor/memory/extent_report.h"
#include "benefactor/memory/metadata_log.h"
#include "benefactor/memory/stop.h"
#include "benefactor/service/client_fence.h"
#include "benefactor/service/job_lines.h"
#include "benefactor/service/write_grants.h"
#include "core/base/executor.h"
#include "core/base/lifetime.h"
#include "core/messages/messages.h"
#include "core/runtime/manager_addresses.h"
#include "core/runtime/reactor.h"
#include "transport/rpc.h"
#include "transport/transport.h"

namespace stdchk::benefactor {

/// Identifies one life of an arena. `high` is random, and `low` belongs to the member: it is
/// Keyring::mark of `high`.
struct Life {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};

/// Makes a Drainer for a drain directory. `rate` is in bytes per second; 0:
/// unlimited. Must not block.
using DrainerFactory =
    std::function<std::unique_ptr<Drainer>(const std::string& directory, std::uint64_t rate)>;

struct Config {
  std::string manager_address;  ///< several, separated by commas, are tried in turn
  /// The member that the endpoints of this benefactor prove.
  std::shared_ptr<transport::secure::Keyring> keyring;
  /// The service believes links that prove nothing. Only for programs that hold all ends.
  bool believes_links = false;
  Life life;
  std::string host_token;
  std::string host_name;
  std::int64_t pid = 0;
  std::uint64_t log_bytes = 0;      ///< for the metadata log, taken at once; 0: none
  std::uint64_t log_bytes_max = 0;  ///< limit of its growth; both 0: no metadata log
  std::function<bool(std::uint64_t more_bytes)> log_may_grow;  ///< as in LogRoom
  /// Runs drain jobs and moves. Must have run all of them before the service ends. nullptr: the
  /// service starts threads of its own.
  Executor* executor = nullptr;
  /// nullptr: drains into files of the directory (benefactor/drain/file_drainer.h).
  DrainerFactory make_drainer;
  /// Called instead of sleeping when a job waits for its rate; null: sleeps.
  std::function<void(Duration)> pause;
  /// Called after each registration with a manager.
  std::function<void(const msg::RegisterBenefactor::Reply&)> on_registered;
  /// Called when the manager refused this benefactor for good. The argument is
  /// a sentence that says why.
  std::function<void(const std::string&)> on_refused;
};

/// A Service lends an arena. It registers with the manager, lets clients attach, fences them, and
/// has drain jobs and moves done. While clients write and read it does nothing.
///
/// It keeps the manager's link up as long as it lives, with back-off and always as the same life.
/// It refuses a manager whose epoch is lower than the highest one seen. After a restart of the
/// manager, it fences every link of earlier clients before it serves any request of that manager.
///
/// Owns: the registrations of the arena, the links, its workers. The caller owns the arena and the
/// endpoints, which must outlive the service, and adds the endpoints to the reactor.
/// Threads: the reactor's. Workers: 3 threads for drain pieces; 2 for finishes and mirrored
/// changes; 1 each for moves and checks. Finishes of a file, and repeats of a change, keep their
/// order. Each drain job that hangs gets its thread replaced, up to kDrainThreadsMax threads.
/// Limits: kJobsMax jobs under way, kLinksMax links. More jobs are answered
/// kBusy, more links closed.
class Service final : public rpc::PeerHandler {
 public:
  static constexpr std::size_t kJobsMax = 256;
  static constexpr std::size_t kDrainThreadsMax = 34;
  static constexpr std::size_t kLinksMax = 32768;
  static constexpr std::size_t kFencedRememberedMax = 65536;

  Service(Reactor& reactor, Config config, Arena& arena, transport::Endpoint& control,
          std::vector<transport::Endpoint*> data);
  /// Ends the workers: waits for the chunk that each is working on, not for the rest of its job.
  ~Service() override;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// Registers the arena, listens, and begins to register with the manager. Warns of an endpoint
  /// that fails, and continues without it. Returns an error when none is left.
  Status start();

  /// Tells the manager that this benefactor wants to end, so that its sole copies are
  /// copied elsewhere. Calls `may_go(true)` when that is done, `may_go(false)` when
  /// there is no manager to tell.
  void leave(std::function<void(bool done)> may_go);

  bool registered() const { return registered_; }
  BenefactorId id() const { return id_; }
  Epoch epoch() const { return epoch_; }
  /// The newest record of this epoch that the benefactor knows to be answered.
  std::uint64_t newest_sequence() const { return newest_sequence_; }
  std::vector<std::string> addresses() const;
  std::size_t attached_count() const;
  /// Returns true when that client can still write.
  bool is_attached(ClientId client) const;
  /// The number of links whose peer may still write although it was fenced or has gone.
  std::size_t unfenced_count() const { return unfenced_.size(); }
  std::size_t job_count() const { return jobs_.size(); }
  const JobCounts& job_counts() const { return *counts_; }
  const MetadataLog& metadata_log() const { return log_; }
  std::uint64_t arena_bytes() const { return arena_.bytes().size(); }
  /// The number of links by transport, including links that have not attached yet.
  std::map<std::string, std::size_t> links_by_transport() const;

  // rpc::PeerHandler
  void on_request(rpc::Peer& peer, msg::RequestEnvelope request, Time deadline,
                  rpc::Responder respond) override;
  void on_closed(rpc::Peer& peer, Error why) override;

 private:
  /// A Listener accepts links of clients on one endpoint.
  struct Listener final : transport::AcceptHandler {
    Listener(Service& owner, transport::Endpoint& through) : service(owner), endpoint(through) {}
    void on_accept(std::unique_ptr<transport::Link> link) override;
    Service& service;
    transport::Endpoint& endpoint;
    std::unique_ptr<transport::MemoryRegion> region;
  };
  struct ClientLink {
    std::unique_ptr<rpc::Peer> peer;
    Listener* listener = nullptr;
    ClientId client;  ///< none: has not attached yet
    Time accepted{};
    std::shared_ptr<transport::WriteCheck> check;  ///< of its writes; null: it only reads
  };
  struct Job {
    rpc::Responder respond;
    TimerId timer;
  };
  /// The service's own threads; unused when the configuration has an executor.
  struct Workers {
    ThreadExecutor pieces{"stdchk-drain", 3};
    ThreadExecutor names{"stdchk-names", 2};
    ThreadExecutor moves{"stdchk-move", 1};
    ThreadExecutor checks{"stdchk-scrub", 1};
  };

  // Registration.
  void connect_manager();
  void register_now();
  void on_register_answer(rpc::Answer answer);
  void send_heartbeat();
  void on_heartbeat(const rpc::Answer& answer);
  void lose_manager(Error why);
  void new_epoch();
  bool has_proven(const rpc::Peer& peer) const;

  // Clients.
  void accept(Listener& listener, std::unique_ptr<transport::Link> link);
  rpc::Answer attach(rpc::Peer& peer, const msg::Attach& request);
  rpc::Answer fence_client(const msg::FenceClient& request);
  std::vector<ClientLink>::iterator link_of(const rpc::Peer& peer);
  transport::RemoteKey share(ClientLink& link);
  Secret grant_key() const;
  template <class Targets>
  void close_grants(const Targets& targets, GrantId before);
  void fence_links(const std::function<bool(const ClientLink&)>& meant);
  void fence_link(ClientLink link);
  void schedule_sweep();
  void sweep();

  // Jobs.
  Executor& worker(ThreadExecutor Workers::*own) {
    return config_.executor != nullptr ? *config_.executor : (*workers_).*own;
  }
  void serve_manager(msg::Request request, Time deadline, rpc::Responder respond);
  void serve_drain(msg::Request request, Time deadline, rpc::Responder respond);
  void start_drain(msg::DrainPieces pieces, Time deadline, rpc::Responder respond);
  void start_names(JobLines::Line line, Time deadline, rpc::Responder respond,
                   std::function<rpc::Answer()> work);
  void watch(std::uint64_t number, ThreadExecutor Workers::*own, FileId file,
             std::uint64_t attempt);
  std::uint64_t start_job(Executor& executor, Time deadline, rpc::Responder respond,
                          std::function<rpc::Answer()> work);
  void finish_job(std::uint64_t number, rpc::Answer answer);

  Reactor& reactor_;
  Config config_;
  Arena& arena_;
  transport::Endpoint& control_;
  std::vector<std::unique_ptr<Listener>> listeners_;

  ManagerAddresses managers_;
  std::shared_ptr<rpc::Peer> manager_;  ///< jobs whose link is gone are not begun
  BenefactorId id_;
  Epoch epoch_;
  ClientId first_client_;  ///< of epoch_
  bool registered_ = false;
  MetadataLog log_;
  std::uint64_t newest_sequence_ = 0;  ///< the newest answered record of epoch_
  std::string proof_;                  ///< of id_, epoch_ and newest_sequence_
  TimerId manager_timer_;
  TimerId sweep_timer_;

  WriteGrants grants_;
  std::vector<ClientLink> links_;  ///< in the order of their arrival
  std::vector<ClientLink> unfenced_;
  ClientFence fence_{kFencedRememberedMax};

  std::shared_ptr<Drainer> drainer_;
  std::string drain_directory_;
  std::uint64_t drain_rate_ = 0;
  std::unordered_map<std::uint64_t, Job> jobs_;
  std::uint64_t jobs_made_ = 0;
  /// Work in the drain directory, by job number. It may outlast its job.
  struct Drain {
    FileId file;  ///< only for pieces
    std::uint64_t attempt = 0;
    TimerId timer;
  };
  std::unordered_map<std::uint64_t, Drain> drains_;
  Stop stop_;
  std::shared_ptr<JobCounts> counts_ = std::make_shared<JobCounts>();
  std::unique_ptr<JobLines> names_;  ///< runs on workers_
  std::unique_ptr<Workers> workers_;
  Forgetter forgetter_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<StripeBuilder> builder_;
  std::function<void(bool)> on_may_go_;  ///< set: the benefactor wants to leave
  Lifetime lifetime_;
};

}  // namespace stdchk::benefactor
