#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "benefactor/copies/copier.h"
#include "benefactor/copies/job_counts.h"
#include "benefactor/copies/stripe_builder.h"
#include "benefactor/memory/extent_report.h"
#include "benefactor/memory/metadata_log.h"
#include "benefactor/memory/stop.h"
#include "benefactor/service/client_links.h"
#include "benefactor/service/config.h"
#include "benefactor/service/jobs.h"

namespace stdchk::benefactor {

/// A ManagerRequests executes the requests of the manager: fences, the metadata log, moves, copies,
/// checks and drains.
///
/// Owns: the jobs, and the links to other benefactors.
/// Threads: the reactor's. Jobs run on workers. Finishes of a file, and repeats of a change, keep
/// their order.
class ManagerRequests {
 public:
  struct Parts {
    const Config& config;
    MutableByteSpan arena;
    ClientLinks& clients;
    MetadataLog& log;
  };
  ManagerRequests(Reactor& reactor, Parts parts);
  /// Ends the workers: waits for the chunk that each is working on, not for the rest of its job.
  ~ManagerRequests();
  ManagerRequests(const ManagerRequests&) = delete;
  ManagerRequests& operator=(const ManagerRequests&) = delete;

  /// Makes copies possible. Only after ClientLinks::start().
  void start();
  /// Sets the drain directory. The directory "" ends draining. `rate` is in bytes per second; 0:
  /// unlimited.
  void drain_into(const std::string& directory, std::uint64_t rate);
  /// Executes a request, and answers it.
  void serve(msg::Request request, Order order);
  /// Cancels the requests of the lost manager. A new manager gives the space to others, so late
  /// work must not change the arena after the next registration.
  void lose_manager();

  std::size_t job_count() const { return jobs_.count(); }
  const JobCounts& counts() const { return *counts_; }

 private:
  // Each executes one request.
  void read_log(const msg::ReadLog& request, Order order);
  void move(msg::MoveExtents moves, Order order);
  void copy(msg::CopyExtents copies, Order order);
  void build(msg::BuildStripe stripe, Order order);
  void check(msg::CheckExtents checks, Order order);
  void report(const msg::ReportExtents& wanted, Order order);
  void forget(msg::ForgetExtents garbage, Order order);
  void serve_drain(msg::Request request, Order order);
  void drain(msg::DrainPieces pieces, Order order);
  void finish(msg::DrainFinish end, Order order);
  void mirror(msg::MirrorChange change, Order order);
  void find(msg::FindDrained wanted, Order order);
  template <class Targets>
  void close_grants(const Targets& targets, GrantId before);

  Reactor& reactor_;
  const Parts parts_;
  Stop stop_;
  std::shared_ptr<JobCounts> counts_ = std::make_shared<JobCounts>();
  std::shared_ptr<Drainer> drainer_;
  std::string drain_directory_;
  std::uint64_t drain_rate_ = 0;
  Forgetter forgetter_;
  Jobs jobs_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<StripeBuilder> builder_;
};

}  // namespace stdchk::benefactor
