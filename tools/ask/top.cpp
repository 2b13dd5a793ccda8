#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "core/base/units.h"
#include "core/policy/redundancy.h"
#include "tools/ask/commands.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"

namespace stdchk::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBarWidth = 30;
constexpr std::chrono::milliseconds kAskAgain{100};
constexpr const char* kClear = "\033[H\033[2J";
constexpr const char* kTakeScreen = "\033[?1049h\033[?25l";  ///< alternate screen, no cursor
constexpr const char* kGiveScreen = "\033[?25h\033[?1049l";

/// The manager's figures at one moment.
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

/// The rate of change of a number of bytes, such as "+12.0 MiB/s".
std::string change(std::uint64_t before, std::uint64_t now, double seconds) {
  const bool more = now >= before;
  const auto bytes = static_cast<double>(more ? now - before : before - now);
  const auto rate = static_cast<std::uint64_t>(seconds > 0 ? bytes / seconds : 0);
  return fmt::format("{}{}/s", more ? "+" : "-", format_bytes(rate));
}

std::uint64_t used(const msg::BenefactorInfo& info) { return info.arena_bytes - info.free_bytes; }

std::uint64_t per_second(std::uint64_t before, std::uint64_t now, double seconds) {
  const auto bytes = static_cast<double>(now - std::min(before, now));
  return static_cast<std::uint64_t>(seconds > 0 ? bytes / seconds : 0);
}

std::string rate(std::uint64_t before, std::uint64_t now, double seconds) {
  return format_bytes(per_second(before, now, seconds)) + "/s";
}

/// The highest rates so far in bytes a second: the full length of the bars.
struct Fastest {
  std::uint64_t written = 0;
  std::uint64_t read = 0;
};

std::string rate_bar(std::uint64_t before, std::uint64_t now, double seconds,
                     std::uint64_t& fastest) {
  const std::uint64_t is = per_second(before, now, seconds);
  fastest = std::max(fastest, is);
  return bar(is, fastest) + " of the fastest";
}

/// Written bytes, and how many of them had to be stored.
void draw_written(const msg::PoolTotals& before, const msg::PoolTotals& now, double seconds,
                  Fastest& fastest) {
  fmt::print("written  {}   {} committed, {} stored; {} and {} in all\n",
             rate_bar(before.written_bytes, now.written_bytes, seconds, fastest.written),
             rate(before.written_bytes, now.written_bytes, seconds),
             rate(before.stored_bytes, now.stored_bytes, seconds), format_bytes(now.written_bytes),
             format_bytes(now.stored_bytes));
}

std::uint64_t read_bytes(const msg::ReaderTotals& totals) {
  return totals.pool_bytes + totals.cached_bytes + totals.drained_bytes;
}

/// Bytes that readers got, by source.
void draw_read(const msg::ReaderTotals& before, const msg::ReaderTotals& now, double seconds,
               Fastest& fastest) {
  fmt::print("read     {}   {} from the pool, {} from caches, {} drained; {} in all\n",
             rate_bar(read_bytes(before), read_bytes(now), seconds, fastest.read),
             rate(before.pool_bytes, now.pool_bytes, seconds),
             rate(before.cached_bytes, now.cached_bytes, seconds),
             rate(before.drained_bytes, now.drained_bytes, seconds), format_bytes(read_bytes(now)));
}

/// The wanted copies or parity, the missing part, and the losses.
void draw_redundancy(const msg::PoolConfig& config, const msg::StatPool::Reply& before,
                     const msg::StatPool::Reply& now, double seconds) {
  const std::uint64_t wanted = now.stored_bytes + now.debt_bytes;
  fmt::print("copies   {}   {} is the pool's; {} lacking for {} chunks   {} made\n",
             wanted == 0 ? bar(1, 1) : bar(now.stored_bytes, wanted),
             redundancy_text(config.copies == 0 ? 1 : config.copies), format_bytes(now.debt_bytes),
             now.debt_chunks, rate(before.copied_bytes, now.copied_bytes, seconds));
  fmt::print("parity   {} for {} chunks; {} chunks rebuilt, {} lost\n",
             format_bytes(now.parity_bytes), now.stripes, now.rebuilt_chunks, now.lost_chunks);
}

void draw_drain(const msg::StatPool::Reply& before, const msg::StatPool::Reply& now,
                double seconds) {
  fmt::print("to drain {} {} files, {}, {} failed   {} drained\n",
             bar(now.drain_pending_bytes, now.logical_bytes), now.drain_pending_files,
             format_bytes(now.drain_pending_bytes), now.drain_failed_files,
             rate(before.totals.drained_bytes, now.totals.drained_bytes, seconds));
}

void draw_benefactors(const Moment& before, const Moment& now, double seconds) {
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
}

void draw(const std::string& mount, const msg::PoolConfig& config, const Moment& before,
          const Moment& now, Fastest& fastest) {
  const auto& pool = now.pool;
  const double seconds = std::chrono::duration<double>(now.when - before.when).count();
  const std::uint64_t taken = pool.total_bytes - pool.free_bytes;
  fmt::print("{}   {} clients, {} open sessions, {} readers, {:.0f} requests/s\n", mount,
             pool.client_count, pool.session_count, pool.reader_count,
             seconds > 0
                 ? static_cast<double>(pool.requests_served - before.pool.requests_served) / seconds
                 : 0.0);
  fmt::print("memory   {} of {}   {}\n", bar(taken, pool.total_bytes),
             format_bytes(pool.total_bytes),
             change(before.pool.total_bytes - before.pool.free_bytes, taken, seconds));
  draw_written(before.pool.totals, pool.totals, seconds, fastest);
  draw_read(before.pool.totals.readers, pool.totals.readers, seconds, fastest);
  const std::uint64_t saved = pool.logical_bytes - std::min(pool.logical_bytes, pool.stored_bytes);
  fmt::print("equal    {} of {} are not stored twice\n", bar(saved, pool.logical_bytes),
             format_bytes(pool.logical_bytes));
  draw_redundancy(config, before.pool, pool, seconds);
  if (config.drain_directory.empty()) {
    fmt::print("to drain there is no drain directory\n");
  } else {
    draw_drain(before.pool, pool, seconds);
  }
  draw_benefactors(before, now, seconds);
  (void)std::fflush(stdout);
}

Outcome<Moment> look(client::Filesystem& filesystem) {
  auto pool = filesystem.stat_pool();
  if (!pool) return failed("the manager", pool.error());
  auto benefactors = filesystem.benefactors();
  if (!benefactors) return failed("the manager", benefactors.error());
  return Moment{Clock::now(), *pool, std::move(*benefactors)};
}

/// A Screen shows one picture after the other. On a terminal it uses the whole screen, and restores
/// the old content at the end.
///
/// Threads: one.
class Screen {
 public:
  Screen() : takes_all_(::isatty(STDOUT_FILENO) != 0) {
    if (!takes_all_) return;
    fmt::print("{}", kTakeScreen);
    // A key takes effect at once, and is not echoed.
    reads_keys_ = ::isatty(STDIN_FILENO) != 0 && ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!reads_keys_) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~Screen() {
    if (reads_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    if (takes_all_) fmt::print("{}", kGiveScreen);
    (void)std::fflush(stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void clear() const {
    if (takes_all_) fmt::print("{}", kClear);
  }
  /// False when a signal or the key q ends the display.
  bool wait(Duration duration) const {
    const auto until = Clock::now() + duration;
    while (!asked_to_end() && Clock::now() < until) {
      if (!reads_keys_) {
        sleep_for(std::min<Duration>(kAskAgain, until - Clock::now()));
        continue;
      }
      pollfd keys{STDIN_FILENO, POLLIN, 0};
      char key = 0;
      if (::poll(&keys, 1, static_cast<int>(kAskAgain.count())) != 1) continue;
      if (::read(STDIN_FILENO, &key, 1) != 1 || key == 'q') return false;
    }
    return !asked_to_end();
  }

 private:
  bool takes_all_;
  bool reads_keys_ = false;
  termios before_{};
};

Outcome<void> show(client::Filesystem& filesystem, const std::string& mount,
                   const TopOptions& options) {
  const Screen screen;
  Fastest fastest;
  auto before = look(filesystem);
  for (std::uint32_t shown = 0; before && (options.count == 0 || shown < options.count); ++shown) {
    if (!screen.wait(std::chrono::seconds(options.interval_s))) return {};
    auto now = look(filesystem);
    if (!now) return problem(now.error());
    screen.clear();
    draw(mount, filesystem.config(), *before, *now, fastest);
    before = std::move(now);
  }
  if (!before) return problem(before.error());
  return {};
}

}  // namespace

int run_top(const TopOptions& options) {
  auto record = find_pool(options.pool, options.path);
  if (!record) return complain(record.error().text);
  auto filesystem = connect(*record);
  if (!filesystem) return complain(filesystem.error().text);
  notice_end_signals();
  const auto shown = show(**filesystem, record->mount, options);
  return shown ? kExitGood : complain(shown.error().text);
}

}  // namespace stdchk::tools
