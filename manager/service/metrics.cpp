#include "manager/service/metrics.h"

#include <string>

#include "metrics/pool_figures.h"

namespace stdchk::manager {
namespace {

constexpr int kWalkShare = 100;

void add_requests(metrics::Exposition& to, const RequestCounts& counts) {
  for (std::size_t kind = 0; kind < counts.times().size(); ++kind) {
    const metrics::Histogram& times = counts.times()[kind];
    if (!times.used()) continue;
    to.histogram("stdchk_manager_request_seconds",
                 "Time from a request's arrival until its answer, by kind of request.",
                 times.snapshot(1e9), {{"kind", std::string(request_name(kind))}});
  }
  for (const auto& [what, count] : counts.errors()) {
    to.counter("stdchk_manager_request_errors_total",
               "Requests that were answered with an error, by kind and error.", count,
               {{"kind", std::string(request_name(what.first))},
                {"error", std::string(code_name(what.second))}});
  }
}

}  // namespace

const msg::StatPool::Reply& ServiceMetrics::statistics() {
  const Time began = service_.pool().now();
  if (began < next_walk_) return last_;
  last_ = service_.services().administration.statistics();
  const Time ended = service_.pool().now();
  next_walk_ = ended + (ended - began) * kWalkShare;
  return last_;
}

void ServiceMetrics::collect(metrics::Exposition& to) {
  metrics::add_pool(to, statistics(), service_.services().members.benefactors.list());
  const auto safe = service_.planners().sets.safe_sets().newest();
  metrics::add_safe_set(to, safe ? safe->newest_ns : 0);
  to.gauge("stdchk_at_risk", "1 while an image is there that one lost benefactor would take along.",
           std::uint64_t{service_.services().writing.totals.at_risk()});
  to.gauge("stdchk_grants", "Ranges of memory granted to writers.",
           std::uint64_t{service_.sessions().grant_count()});
  to.gauge("stdchk_granted_bytes", "Granted bytes that are not committed.",
           service_.sessions().granted_bytes());
  to.gauge("stdchk_quarantined_bytes",
           "Memory that stays reserved until an ended client is fenced from it.",
           service_.services().writing.totals.quarantined_bytes());
  to.gauge("stdchk_aborted_writes",
           "Writes without a commit that are remembered; `stdchk ls --aborted` names them.",
           std::uint64_t{service_.services().writing.sessions.aborted_count()});
  to.counter("stdchk_commit_conflicts_total",
             "Ranges of files that a commit laid over what others had committed since its session "
             "was opened.",
             service_.services().writing.totals.conflicts());
  add_requests(to, service_.services().router.request_counts());
  const Journal::Figures journal = journal_.figures();
  to.counter("stdchk_journal_records_total", "Records that were written to the journal.",
             journal.records);
  to.histogram("stdchk_journal_sync_seconds",
               "Time that a write of the journal took until it was durable; one write has all "
               "records that waited for it.",
               journal.syncs);
}

}  // namespace stdchk::manager
