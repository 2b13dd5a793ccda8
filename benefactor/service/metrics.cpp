#include "benefactor/service/metrics.h"

namespace stdchk::benefactor {
namespace {

void add_jobs(metrics::Exposition& to, const JobCounts& counts) {
  const auto count = [&](const char* name, const char* help,
                         const std::atomic<std::uint64_t>& value) {
    to.counter(name, help, value.load(std::memory_order_relaxed));
  };
  count("stdchk_benefactor_copied_bytes_total",
        "Bytes that this benefactor has copied from other benefactors.", counts.copied_bytes);
  count("stdchk_benefactor_copies_failed_total",
        "Chunks that could not be read from other benefactors, or had wrong bytes.",
        counts.copies_failed);
  count("stdchk_benefactor_built_bytes_total",
        "Bytes of parity and of lost chunks that this benefactor has made.", counts.built_bytes);
  count("stdchk_benefactor_builds_failed_total", "Failed requests to make these bytes.",
        counts.builds_failed);
  count("stdchk_benefactor_moved_bytes_total", "Bytes that were moved to join holes.",
        counts.moved_bytes);
  count("stdchk_benefactor_scrubbed_bytes_total", "Bytes whose checksums were compared.",
        counts.checked_bytes);
  count("stdchk_benefactor_wrong_extents_total", "Chunks whose checksums were wrong.",
        counts.wrong_extents);
  count("stdchk_benefactor_drained_bytes_total",
        "Bytes that this benefactor has written to the drain directory, and verified.",
        counts.drained_bytes);
  count("stdchk_benefactor_drained_files_total",
        "Files that this benefactor has given their names in the drain directory.",
        counts.drained_files);
  count("stdchk_benefactor_drains_failed_total", "Failed requests to drain.", counts.drains_failed);
}

}  // namespace

void collect(const Service& service, metrics::Exposition& to) {
  to.gauge("stdchk_benefactor_registered", "1 while the manager knows it.",
           std::uint64_t{service.registered()});
  to.gauge("stdchk_benefactor_number",
           "Number of the benefactor in the pool: 3 for the benefactor that the manager names b3.",
           service.id().value);
  to.gauge("stdchk_benefactor_arena_bytes", "Memory, or disk, that it lends for chunks.",
           service.arena_bytes());
  to.gauge("stdchk_benefactor_log_memory_bytes", "Memory taken for the manager's metadata.",
           service.metadata_log().taken_bytes());
  to.gauge("stdchk_benefactor_log_bytes_max", "Memory that the manager's metadata may take.",
           service.metadata_log().bytes_max());
  to.gauge("stdchk_benefactor_log_bytes", "Memory that the manager's metadata takes.",
           service.metadata_log().bytes());
  for (const auto& [transport, count] : service.links_by_transport()) {
    to.gauge("stdchk_benefactor_links", "Connections to it by transport.", std::uint64_t{count},
             {{"transport", transport}});
  }
  to.gauge("stdchk_benefactor_attached_links",
           "Connections whose clients can write and read its memory.",
           std::uint64_t{service.attached_count()});
  to.gauge("stdchk_benefactor_unfenced_links", "Connections of ended clients that may still write.",
           std::uint64_t{service.unfenced_count()});
  to.gauge("stdchk_benefactor_jobs", "Drains, checks and moves that are under way.",
           std::uint64_t{service.job_count()});
  add_jobs(to, service.job_counts());
}

}  // namespace stdchk::benefactor
