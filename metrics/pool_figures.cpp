#include "metrics/pool_figures.h"

#include <map>
#include <string>

#include "core/base/units.h"

namespace stdchk::metrics {
namespace {

void add_space(Exposition& to, const msg::StatPool::Reply& pool) {
  to.gauge("stdchk_memory_bytes", "Lent memory.", pool.total_bytes);
  to.gauge("stdchk_memory_free_bytes", "Lent memory that is not granted and not used.",
           pool.free_bytes);
  to.gauge("stdchk_memory_evictable_bytes", "Memory of images that are drained.",
           pool.evictable_bytes);
  to.gauge("stdchk_memory_fullest_ratio", "Largest share of the lent memory that was in use.",
           pool.totals.fullest_permille / 1000.0);
  to.gauge("stdchk_files", "Files in the pool.", pool.file_count);
  to.gauge("stdchk_chunks", "Chunks in memory.", pool.chunk_count);
  to.gauge("stdchk_logical_bytes", "Bytes of all files.", pool.logical_bytes);
  to.gauge("stdchk_stored_bytes", "Memory that all files take; equal chunks are stored once.",
           pool.stored_bytes);
}

void add_drain(Exposition& to, const msg::StatPool::Reply& pool) {
  to.gauge("stdchk_drain_pending_files", "Files that are still to be drained.",
           pool.drain_pending_files);
  to.gauge("stdchk_drain_pending_bytes", "Bytes that are still to be drained.",
           pool.drain_pending_bytes);
  to.gauge("stdchk_drain_failed_files", "Files to be drained whose last drain has failed.",
           pool.drain_failed_files);
  to.counter("stdchk_drained_images_total", "Images that were drained.",
             pool.totals.drained_images);
  to.counter("stdchk_drained_bytes_total", "Bytes of images that were drained.",
             pool.totals.drained_bytes);
}

void add_copies(Exposition& to, const msg::StatPool::Reply& pool) {
  to.gauge("stdchk_copies_missing_chunks", "Chunks with fewer copies than they should have.",
           pool.debt_chunks);
  to.gauge("stdchk_copies_missing_bytes",
           "Bytes that are still to be copied for the missing copies.", pool.debt_bytes);
  to.gauge("stdchk_lost_chunks", "Chunks without a copy, not drained.", pool.lost_chunks);
  to.counter("stdchk_copies_made_total", "Copies of chunks that benefactors have made.",
             pool.copies_made);
  to.counter("stdchk_copied_bytes_total", "Bytes that benefactors have copied from each other.",
             pool.copied_bytes);
  to.gauge("stdchk_stripes", "Stripes: chunks that protect each other by parity.", pool.stripes);
  to.gauge("stdchk_parity_bytes", "Memory that the parity of stripes takes.", pool.parity_bytes);
  to.counter("stdchk_rebuilt_chunks_total", "Chunks that were made again from their stripes.",
             pool.rebuilt_chunks);
  to.gauge("stdchk_metadata_copies", "Benefactors that keep all of the manager's metadata.",
           std::uint64_t{pool.log_copies});
  to.gauge("stdchk_metadata_copies_wanted",
           "Benefactors that should keep all of the manager's metadata.",
           std::uint64_t{pool.log_copies_wanted});
  to.gauge("stdchk_metadata_log_bytes", "Bytes of the longest log of the manager's metadata.",
           pool.log_bytes);
  to.gauge("stdchk_metadata_log_needed_bytes",
           "Memory that a benefactor needs for the metadata log and for its successor.",
           pool.log_bytes_needed);
  to.gauge("stdchk_metadata_log_max_bytes",
           "Smallest limit of a benefactor's memory for the metadata log.", pool.log_bytes_max);
  to.gauge("stdchk_metadata_log_full", "Benefactors that had no room for the metadata.",
           std::uint64_t{pool.log_full});
  to.gauge(
      "stdchk_metadata_warnings",
      "Dangers for the metadata, or for a takeover by the standby; `stdchk status` names them.",
      std::uint64_t{pool.log_advice.size()});
  to.gauge("stdchk_standby_keepers",
           "Benefactors of which the standby needs more than half for a takeover.",
           std::uint64_t{pool.standby_quorum});
  to.gauge("stdchk_standby_reached",
           "Benefactors among stdchk_standby_keepers that keep all of the metadata now.",
           std::uint64_t{pool.standby_reached});
  to.gauge("stdchk_standby_follows", "1 when the manager has a standby that follows it.",
           std::uint64_t{pool.standby_follows});
  const auto& scrub = pool.scrub;
  to.gauge("stdchk_scrub_running", "1 while all copies are being checked.",
           std::uint64_t{scrub.running});
  to.counter("stdchk_scrub_passes_total", "Times that all copies were checked.", scrub.passes);
  to.counter("stdchk_scrub_checked_bytes_total", "Bytes that were checked.", scrub.checked_bytes);
  to.counter("stdchk_scrub_wrong_chunks_total", "Copies whose checksum was wrong.",
             scrub.wrong_chunks);
  to.counter("stdchk_scrub_repaired_chunks_total", "Wrong copies that were made again.",
             scrub.repaired_chunks);
}

void add_activity(Exposition& to, const msg::StatPool::Reply& pool) {
  to.gauge("stdchk_epoch", "The manager's epoch: its starts and takeovers, counted from 1.",
           pool.epoch.value);
  to.gauge("stdchk_sessions", "Files that are open for writing.", pool.session_count);
  to.gauge("stdchk_readers", "Files that are open for reading, by the clients' last heartbeats.",
           pool.reader_count);
  to.gauge("stdchk_clients", "Mounts, programs and tools that are connected.", pool.client_count);
  to.counter("stdchk_requests_total", "Requests that the manager has served.",
             pool.requests_served);
}

void add_totals(Exposition& to, const msg::PoolTotals& totals) {
  to.counter("stdchk_images_total", "Files that were committed with content for the first time.",
             totals.images);
  to.counter("stdchk_written_bytes_total", "Bytes that were committed.", totals.written_bytes);
  to.counter("stdchk_new_bytes_total",
             "Part of the written bytes that the pool had not stored already.",
             totals.stored_bytes);
  to.counter("stdchk_at_risk_seconds_total",
             "Time with an image that the loss of one benefactor would have lost.",
             seconds(totals.at_risk_ns));
  to.counter("stdchk_sets_total", "Sets that a newer set of their application has followed.",
             totals.sets);
  to.counter("stdchk_sets_overtaken_total",
             "Sets that were not drained when a newer set of their application came.",
             totals.sets_overtaken);
  to.counter("stdchk_space_waits_total", "Writers that had to wait for room.", totals.space_waits);
  to.counter("stdchk_space_wait_seconds_total", "Time that writers waited for room, summed up.",
             seconds(totals.space_wait_ns));
  // The figures of clients come with their heartbeats, so they are a few seconds old.
  const msg::WriterTotals& writers = totals.writers;
  to.counter("stdchk_clients_closed_bytes_total", "Bytes whose close has returned, of all clients.",
             writers.closed_bytes);
  to.counter("stdchk_clients_open_to_close_seconds_total",
             "Time from open until close returned, summed up over all files.",
             seconds(writers.open_to_close_ns));
  to.counter("stdchk_clients_committed_bytes_total", "Bytes that are committed, of all clients.",
             writers.committed_bytes);
  to.counter("stdchk_clients_open_to_commit_seconds_total",
             "Time from open until the commit, summed up over all files.",
             seconds(writers.open_to_commit_ns));
  add_reads(to, "stdchk_clients_read_bytes_total",
            "Bytes that readers of all clients got, by source.", totals.readers);
}

void add_benefactors(Exposition& to, const std::vector<msg::BenefactorInfo>& benefactors) {
  std::map<msg::BenefactorState, std::uint64_t> states;
  for (const auto state :
       {msg::BenefactorState::kAlive, msg::BenefactorState::kSilent, msg::BenefactorState::kGone}) {
    states[state] = 0;
  }
  for (const auto& info : benefactors) {
    const Labels labels{{"benefactor", "b" + std::to_string(info.id.value)},
                        {"host", info.host_name}};
    ++states[info.state];
    to.gauge("stdchk_benefactor_up", "1 when the benefactor answers the manager.",
             std::uint64_t{info.state == msg::BenefactorState::kAlive}, labels);
    to.gauge("stdchk_benefactor_memory_bytes", "Memory that the benefactor lends.",
             info.arena_bytes, labels);
    to.gauge("stdchk_benefactor_memory_free_bytes", "Free part of the lent memory.",
             info.free_bytes, labels);
  }
  for (const auto& [state, count] : states) {
    to.gauge("stdchk_benefactors", "Benefactors by state, as the manager sees them.", count,
             {{"state", std::string(name_of(state))}});
  }
}

}  // namespace

void add_reads(Exposition& to, const std::string& name, const std::string& help,
               const msg::ReaderTotals& reads) {
  to.counter(name, help, reads.pool_bytes, {{"from", "pool"}});
  to.counter(name, help, reads.cached_bytes, {{"from", "cache"}});
  to.counter(name, help, reads.drained_bytes, {{"from", "drain"}});
}

void add_safe_set(Exposition& to, std::int64_t newest_ns) {
  to.gauge(
      "stdchk_safe_set_timestamp_seconds",
      "Time of the newest commit in the newest complete set that is drained whole, since 1970; "
      "0: no set is.",
      seconds(static_cast<std::uint64_t>(newest_ns)));
}

std::string_view name_of(msg::BenefactorState state) {
  switch (state) {
    case msg::BenefactorState::kAlive:
      return "alive";
    case msg::BenefactorState::kSilent:
      return "silent";
    case msg::BenefactorState::kGone:
      return "gone";
  }
  return "unknown";
}

void add_pool(Exposition& to, const msg::StatPool::Reply& pool,
              const std::vector<msg::BenefactorInfo>& benefactors) {
  add_space(to, pool);
  add_drain(to, pool);
  add_copies(to, pool);
  add_activity(to, pool);
  add_totals(to, pool.totals);
  add_benefactors(to, benefactors);
}

}  // namespace stdchk::metrics
