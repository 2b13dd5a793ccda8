#include "tools/ask/report_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/units.h"
#include "core/policy/redundancy.h"

namespace stdchk::tools {
namespace {

// Figures below these limits ask for no change.
constexpr double kWaitSeconds = 1;  ///< time that all writers together waited for room
/// time with an image that the loss of one benefactor would lose
constexpr double kRiskSeconds = 60;
constexpr double kNamingSeconds = 1;      ///< processor seconds for names with too few matches
constexpr std::uint64_t kEqualPart = 20;  ///< at least one in this number of named bytes must match
constexpr double kCallSeconds = 10;       ///< length of one write or close, in a pool with room
/// largest share of overtaken sets: one in this number
constexpr std::uint64_t kOvertakenPart = 4;

std::string time_text(std::uint64_t ns) {
  const double time = seconds(ns);
  if (time < 1) return fmt::format("{:.0f} ms", time * 1e3);
  if (time < 120) return fmt::format("{:.1f} s", time);
  if (time < 7200) return fmt::format("{:.1f} min", time / 60);
  return fmt::format("{:.1f} h", time / 3600);
}

double rate(std::uint64_t bytes, std::uint64_t ns) {
  return ns == 0 ? 0 : static_cast<double>(bytes) / seconds(ns);
}

std::string rate_text(double rate) {
  return rate == 0 ? "-" : format_bytes(static_cast<std::uint64_t>(rate)) + "/s";
}

std::string files(std::uint64_t count, const char* what = "file") {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

bool drains(const ReportFigures& figures) { return !figures.config.drain_directory.empty(); }

std::string slow_drain(const ReportFigures& figures) {
  const auto& totals = figures.pool.totals;
  const std::string faster = figures.config.drain_rate_bytes_per_s > 0
                                 ? "raise --drain-rate"
                                 : "let the drain run while images are written, too "
                                   "(--drain-yields off)";
  return fmt::format(
      "The drain took longer than the time between two sets, {} of {} times: {}. Or drain only "
      "every 2nd set (policy drain-every=2).",
      totals.sets_overtaken, totals.sets, faster);
}

std::string full_pool(const ReportFigures& figures) {
  const auto& totals = figures.pool.totals;
  return fmt::format(
      "The pool was {} % full, and {} waited {} for room in all: lend more memory (--memory), or "
      "add a benefactor{}.",
      totals.fullest_permille / 10, files(totals.space_waits, "writer"),
      time_text(totals.space_wait_ns), drains(figures) ? ", or drain faster" : "");
}

std::string at_risk(const ReportFigures& figures) {
  const std::string time = time_text(figures.pool.totals.at_risk_ns);
  const Redundancy asked = redundancy_of(figures.config.copies).value_or(Redundancy{});
  if (asked.losses() > 0) {
    return fmt::format(
        "For {} images had fewer copies than they should have, and were not drained. With --close "
        "redundant, close() waits for all copies. --copy-rate limits how fast copies are made.",
        time);
  }
  return fmt::format(
      "For {} images were only in the pool and with one copy, so the loss of one benefactor would "
      "have lost them. Use --copies 2, or --copies 'ec(4,1)', which takes less memory{}.",
      time, drains(figures) ? "" : ", or a drain directory (--drain)");
}

std::string useless_names(const msg::WriterTotals& writers) {
  const std::string found = writers.equal_bytes == 0
                                ? "Nothing"
                                : fmt::format("Only {}", format_bytes(writers.equal_bytes));
  return fmt::format(
      "{} of {} was equal to stored chunks: --naming off saves {} of processor time.", found,
      format_bytes(writers.named_bytes), time_text(writers.naming_ns));
}

}  // namespace

double observed_throughput(const msg::WriterTotals& writers) {
  return rate(writers.closed_bytes, writers.open_to_close_ns);
}

double achieved_throughput(const msg::WriterTotals& writers) {
  return rate(writers.committed_bytes, writers.open_to_commit_ns);
}

std::uint64_t saved_bytes(const msg::PoolTotals& totals) {
  return totals.written_bytes - std::min(totals.written_bytes, totals.stored_bytes);
}

std::vector<std::string> recommendations(const ReportFigures& figures) {
  const msg::StatPool::Reply& pool = figures.pool;
  const msg::PoolTotals& totals = pool.totals;
  const msg::WriterTotals& writers = totals.writers;
  std::vector<std::string> out;
  const auto advise = [&](bool applies, const auto& sentence) {
    if (applies && out.size() < kAdviceMax) out.push_back(sentence());
  };
  advise(pool.lost_chunks > 0, [&] {
    return fmt::format(
        "{} went with a lost benefactor. Copies or parity keep images through such a loss "
        "(--copies 2, --copies 'ec(4,1)').",
        files(pool.lost_chunks, "chunk"));
  });
  advise(pool.drain_failed_files > 0, [&] {
    return fmt::format("{} could not be drained so far: the manager's log says why.",
                       files(pool.drain_failed_files));
  });
  advise(figures.ends && pool.drain_pending_files > 0, [&] {
    return fmt::format(
        "{} ({}) did not get to the drain directory: `stdchk down --drain` waits for them.",
        files(pool.drain_pending_files), format_bytes(pool.drain_pending_bytes));
  });
  advise(totals.sets_overtaken > 0 && totals.sets_overtaken * kOvertakenPart >= totals.sets,
         [&] { return slow_drain(figures); });
  const bool waited = seconds(totals.space_wait_ns) >= kWaitSeconds;
  advise(waited, [&] { return full_pool(figures); });
  advise(seconds(totals.at_risk_ns) >= kRiskSeconds, [&] { return at_risk(figures); });
  advise(seconds(writers.naming_ns) >= kNamingSeconds &&
             writers.equal_bytes < writers.named_bytes / kEqualPart,
         [&] { return useless_names(writers); });
  advise(!waited && seconds(writers.longest_call_ns) >= kCallSeconds, [&] {
    return fmt::format(
        "One write or close took {}: `stdchk doctor {}` measures how fast each "
        "benefactor is reached.",
        time_text(writers.longest_call_ns), figures.mount);
  });
  return out;
}

std::string card_text(const ReportFigures& figures) {
  const msg::StatPool::Reply& pool = figures.pool;
  const msg::PoolTotals& totals = pool.totals;
  const msg::WriterTotals& writers = totals.writers;
  const std::uint64_t saved = saved_bytes(totals);
  std::string out =
      fmt::format("Report card of the pool at {}, since {}\n", figures.mount, figures.since);
  const auto line = [&](const char* name, const std::string& text) {
    out += fmt::format("  {:<12}{}\n", name, text);
  };
  line("images", std::to_string(totals.images));
  line("written", format_bytes(totals.written_bytes));
  line("saved", fmt::format("{} that the pool had already, {} %", format_bytes(saved),
                            totals.written_bytes == 0 ? 0 : saved * 100 / totals.written_bytes));
  line("OT", rate_text(observed_throughput(writers)) + " from open until close returned");
  line("AT", rate_text(achieved_throughput(writers)) + " from open until all was committed");
  line("longest", time_text(writers.longest_call_ns) + " in one write or close");
  if (totals.readers != msg::ReaderTotals{}) {
    line("read", fmt::format("{} from the pool, {} from caches, {} from the drain directory",
                             format_bytes(totals.readers.pool_bytes),
                             format_bytes(totals.readers.cached_bytes),
                             format_bytes(totals.readers.drained_bytes)));
  }
  if (drains(figures)) {
    line("drained",
         fmt::format("{} images, {}", totals.drained_images, format_bytes(totals.drained_bytes)));
    line("not drained", fmt::format("{}, {}", files(pool.drain_pending_files),
                                    format_bytes(pool.drain_pending_bytes)));
    line("overtaken", fmt::format("{} of {} sets, not drained when the next one came",
                                  totals.sets_overtaken, totals.sets));
  } else {
    line("drained", "nothing, there is no drain directory");
  }
  for (const std::string& what : figures.lost) line("lost", what);
  line("at risk", fmt::format("{:.1f} min with images that the loss of one benefactor would lose",
                              seconds(totals.at_risk_ns) / 60));
  line("memory", fmt::format("{:.0f} % in use at most, of {}",
                             static_cast<double>(totals.fullest_permille) / 10,
                             format_bytes(pool.total_bytes)));
  line("full", fmt::format("{} waited {} for room", files(totals.space_waits, "writer"),
                           time_text(totals.space_wait_ns)));
  const std::vector<std::string> advice = recommendations(figures);
  for (const std::string& sentence : advice) out += sentence + "\n";
  if (advice.empty()) out += "Nothing in these figures asks for a change.\n";
  return out;
}

nlohmann::json card_json(const ReportFigures& figures) {
  const msg::StatPool::Reply& pool = figures.pool;
  const msg::PoolTotals& totals = pool.totals;
  const msg::WriterTotals& writers = totals.writers;
  return {{"mount", figures.mount},
          {"since", figures.since},
          {"images", totals.images},
          {"written_bytes", totals.written_bytes},
          {"stored_bytes", totals.stored_bytes},
          {"saved_bytes", saved_bytes(totals)},
          {"ot_bytes_per_second", observed_throughput(writers)},
          {"closed_bytes", writers.closed_bytes},
          {"open_to_close_seconds", seconds(writers.open_to_close_ns)},
          {"at_bytes_per_second", achieved_throughput(writers)},
          {"committed_bytes", writers.committed_bytes},
          {"open_to_commit_seconds", seconds(writers.open_to_commit_ns)},
          {"longest_call_seconds", seconds(writers.longest_call_ns)},
          {"read_pool_bytes", totals.readers.pool_bytes},
          {"read_cached_bytes", totals.readers.cached_bytes},
          {"read_drained_bytes", totals.readers.drained_bytes},
          {"named_bytes", writers.named_bytes},
          {"equal_bytes", writers.equal_bytes},
          {"naming_processor_seconds", seconds(writers.naming_ns)},
          {"drained_images", totals.drained_images},
          {"drained_bytes", totals.drained_bytes},
          {"drain_pending_files", pool.drain_pending_files},
          {"drain_pending_bytes", pool.drain_pending_bytes},
          {"drain_failed_files", pool.drain_failed_files},
          {"sets_followed", totals.sets},
          {"sets_overtaken", totals.sets_overtaken},
          {"at_risk_seconds", seconds(totals.at_risk_ns)},
          {"lost_chunks", pool.lost_chunks},
          {"fullest", static_cast<double>(totals.fullest_permille) / 1000},
          {"space_waits", totals.space_waits},
          {"space_wait_seconds", seconds(totals.space_wait_ns)},
          {"lost", figures.lost},
          {"advice", recommendations(figures)}};
}

}  // namespace stdchk::tools
