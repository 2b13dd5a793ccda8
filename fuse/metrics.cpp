#include "fuse/metrics.h"

#include <cstring>
#include <string>
#include <utility>

#include "core/base/units.h"
#include "metrics/pool_figures.h"

namespace stdchk::mount {
namespace {

/// Returns the name of an errno, such as "ENOSPC"; see strerrorname_np(3).
std::string errno_name(int number) {
  const char* const name = ::strerrorname_np(number);
  return name == nullptr ? std::to_string(number) : std::string(name);
}

void add_requests(metrics::Exposition& to, const RequestCounts& requests) {
  for (std::size_t i = 0; i < kRequestKinds; ++i) {
    const auto kind = static_cast<RequestKind>(i);
    const metrics::Labels labels{{"kind", std::string(name_of(kind))}};
    to.counter("stdchk_mount_requests_total", "Requests of the kernel by kind.",
               requests.requests(kind), labels);
    to.counter("stdchk_mount_request_seconds_total", "Time that they took, all together.",
               seconds(requests.request_ns(kind)), labels);
  }
  for (int number = 1; number < static_cast<int>(RequestCounts::kErrnoMax); ++number) {
    const std::uint64_t count = requests.errors(number);
    if (count == 0) continue;
    to.counter("stdchk_mount_errors_total", "Requests that were answered with an error.", count,
               {{"errno", errno_name(number)}});
  }
  const metrics::Distribution writes = requests.writes().snapshot();
  const metrics::Distribution reads = requests.reads().snapshot();
  to.counter("stdchk_mount_written_bytes_total", "Bytes that the kernel has written.", writes.sum);
  to.counter("stdchk_mount_read_bytes_total", "Bytes that the kernel has read.", reads.sum);
  to.histogram("stdchk_mount_write_size_bytes", "Bytes of one write of the kernel.", writes);
  to.histogram("stdchk_mount_read_size_bytes", "Bytes of one read of the kernel.", reads);
}

void add_totals(metrics::Exposition& to, const client::Figures& client) {
  const msg::WriterTotals& totals = client.totals;
  to.counter("stdchk_mount_closed_bytes_total", "Bytes whose close, or other commit, has returned.",
             totals.closed_bytes);
  to.counter("stdchk_mount_open_to_close_seconds_total",
             "Time from open until then, of all files together: closed bytes by this are OT.",
             seconds(totals.open_to_close_ns));
  to.counter("stdchk_mount_committed_bytes_total", "Bytes that are committed.",
             totals.committed_bytes);
  to.counter("stdchk_mount_open_to_commit_seconds_total",
             "Time from open until then, of all files together: committed bytes by this are AT.",
             seconds(totals.open_to_commit_ns));
  to.gauge("stdchk_mount_longest_call_seconds", "The longest write, fsync or close so far.",
           seconds(totals.longest_call_ns));
  to.counter("stdchk_mount_named_bytes_total", "Bytes of chunks that got a name.",
             totals.named_bytes);
  to.counter("stdchk_mount_equal_bytes_total", "Part of the named bytes that the pool had already.",
             totals.equal_bytes);
  to.counter("stdchk_mount_recognised_bytes_total",
             "Part of the named bytes that were not hashed, because this mount had named the same "
             "content before.",
             client.recognised_bytes);
  to.counter("stdchk_mount_naming_seconds_total", "Processor time for the names.",
             seconds(totals.naming_ns));
}

void add_memory(metrics::Exposition& to, const client::Figures& client) {
  const auto bytes = [&](std::size_t slots) { return std::uint64_t{slots} * client.chunk_bytes; };
  to.gauge("stdchk_mount_window_bytes", "Memory for bytes on their way to the pool.",
           bytes(client.window_slots));
  const std::size_t receiving =
      client.window_slots - client.window_free - client.window_filling - client.window_busy;
  for (const auto& [state, slots] :
       {std::pair{"free", client.window_free}, std::pair{"receiving", receiving},
        std::pair{"filling", client.window_filling}, std::pair{"busy", client.window_busy}}) {
    to.gauge("stdchk_mount_window_state_bytes",
             "Parts of the window: free, lent to receive requests, waiting for more bytes, or in "
             "flight.",
             bytes(slots), {{"state", state}});
  }
  to.counter("stdchk_mount_window_waits_total", "Writes that found no free memory there.",
             client.window_waits);
  to.counter("stdchk_mount_window_wait_seconds_total", "Time from then until they returned.",
             seconds(client.window_wait_ns));
  to.counter("stdchk_mount_cache_reads_total", "Times that a chunk was read from the cache.",
             client.cache_reads);
  for (const auto& [cause, fetches] :
       {std::pair{"read", client.cache_fetches}, std::pair{"ahead", client.cache_ahead}}) {
    to.counter(
        "stdchk_mount_cache_fetches_total",
        "Chunks that were fetched into it because a reader wanted one, or ahead of a reader.",
        fetches, {{"cause", cause}});
  }
}

void add_transports(metrics::Exposition& to, const client::Figures& client) {
  for (const auto& [transport, of] : client.transports) {
    for (const auto& [state, rails] : {std::pair{"ready", of.ready}, std::pair{"parked", of.parked},
                                       std::pair{"other", of.other}}) {
      to.gauge("stdchk_mount_rails",
               "Ways to benefactors: ready, lost and to be tried again, or not needed so far.",
               std::uint64_t{rails}, {{"transport", transport}, {"state", state}});
    }
    to.counter("stdchk_mount_sent_bytes_total", "Bytes that were written to benefactors.",
               of.written_bytes, {{"transport", transport}});
    to.counter("stdchk_mount_fetched_bytes_total", "Bytes that were read from benefactors.",
               of.read_bytes, {{"transport", transport}});
    to.counter("stdchk_mount_transfers_failed_total", "Transfers that have failed.", of.failed,
               {{"transport", transport}});
  }
}

}  // namespace

void collect(const RequestCounts& requests, const client::Figures& client,
             metrics::Exposition& to) {
  to.gauge("stdchk_mount_manager_up", "1 while the manager answers this mount.",
           std::uint64_t{client.manager_up});
  to.gauge("stdchk_mount_sessions", "Files that are open for writing here.",
           std::uint64_t{client.sessions});
  to.gauge("stdchk_mount_readers", "Files that are open for reading here.", client.reader_count);
  metrics::add_reads(to, "stdchk_mount_served_bytes_total",
                     "Bytes of files that the kernel got, by where they came from.", client.reads);
  add_requests(to, requests);
  add_totals(to, client);
  add_memory(to, client);
  add_transports(to, client);
}

}  // namespace stdchk::mount
