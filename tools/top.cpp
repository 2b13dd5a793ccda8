#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "core/units.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBarWidth = 30;
constexpr const char* kClear = "\033[H\033[2J";

/// What the manager has said at one moment.
struct Moment {
  Clock::time_point when;
  msg::StatPool::Reply pool;
  std::vector<msg::BenefactorInfo> benefactors;
};

std::string bar(std::uint64_t part, std::uint64_t whole) {
  part = std::min(part, whole);
  const std::uint64_t filled = whole == 0 ? 0 : part * kBarWidth / whole;
  return fmt::format("[{}{}] {:3} %", std::string(filled, '#'),
                     std::string(kBarWidth - filled, ' '), whole == 0 ? 0 : part * 100 / whole);
}

/// "+12.0 MiB/s": how fast a number of bytes has changed.
std::string change(std::uint64_t before, std::uint64_t now, double seconds) {
  const bool more = now >= before;
  const auto bytes = static_cast<double>(more ? now - before : before - now);
  const auto rate = static_cast<std::uint64_t>(seconds > 0 ? bytes / seconds : 0);
  return fmt::format("{}{}/s", more ? "+" : "-", format_bytes(rate));
}

std::uint64_t used(const msg::BenefactorInfo& info) { return info.arena_bytes - info.free_bytes; }

void draw(const PoolRecord& record, const Moment& before, const Moment& now, bool has_drain) {
  const auto& pool = now.pool;
  const double seconds = std::chrono::duration<double>(now.when - before.when).count();
  const std::uint64_t taken = pool.total_bytes - pool.free_bytes;
  fmt::print("{}   {} clients, {} open sessions, {:.0f} requests/s\n", record.mount,
             pool.client_count, pool.session_count,
             seconds > 0
                 ? static_cast<double>(pool.requests_served - before.pool.requests_served) / seconds
                 : 0.0);
  fmt::print("memory   {} of {}   {}\n", bar(taken, pool.total_bytes),
             format_bytes(pool.total_bytes),
             change(before.pool.total_bytes - before.pool.free_bytes, taken, seconds));
  const std::uint64_t saved = pool.logical_bytes - std::min(pool.logical_bytes, pool.stored_bytes);
  fmt::print("equal    {} of {} are not stored twice\n", bar(saved, pool.logical_bytes),
             format_bytes(pool.logical_bytes));
  if (has_drain) {
    fmt::print("to drain {} {} files, {}, {} failed   {}\n",
               bar(pool.drain_pending_bytes, pool.logical_bytes), pool.drain_pending_files,
               format_bytes(pool.drain_pending_bytes), pool.drain_failed_files,
               change(before.pool.drain_pending_bytes, pool.drain_pending_bytes, seconds));
  } else {
    fmt::print("to drain there is no drain directory\n");
  }
  std::map<BenefactorId, std::uint64_t> earlier;
  for (const auto& info : before.benefactors) earlier[info.id] = used(info);
  std::vector<std::vector<std::string>> table;
  for (const auto& info : now.benefactors) {
    const auto known = earlier.find(info.id);
    const bool alive = info.state == msg::BenefactorState::kAlive;
    table.push_back({fmt::format("b{}", info.id.value), info.host_name,
                     bar(used(info), info.arena_bytes), "of " + format_bytes(info.arena_bytes),
                     known == earlier.end() ? "" : change(known->second, used(info), seconds),
                     alive ? "" : "does not answer"});
  }
  print_table(table, {4});
  (void)std::fflush(stdout);
}

Outcome<Moment> look(client::Filesystem& filesystem) {
  auto pool = filesystem.stat_pool();
  if (!pool) return failed("the manager", pool.error());
  auto benefactors = filesystem.benefactors();
  if (!benefactors) return failed("the manager", benefactors.error());
  return Moment{Clock::now(), *pool, std::move(*benefactors)};
}

}  // namespace

int run_top(const TopOptions& options) {
  auto record = find_pool(options.pool, options.path);
  if (!record) return complain(record.error().text);
  auto filesystem = connect(*record);
  if (!filesystem) return complain(filesystem.error().text);
  const bool has_drain = !(*filesystem)->config().drain_directory.empty();
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  auto before = look(**filesystem);
  for (std::uint32_t shown = 0; before;) {
    sleep_for(std::chrono::seconds(options.interval_s));
    auto now = look(**filesystem);
    if (!now) return complain(now.error().text);
    if (terminal) std::fputs(kClear, stdout);
    draw(*record, *before, *now, has_drain);
    before = std::move(now);
    if (++shown == options.count) return kExitGood;
  }
  return complain(before.error().text);
}

}  // namespace stdchk::tools
