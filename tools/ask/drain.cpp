#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "client/blocking/drained_lookup.h"
#include "core/base/units.h"
#include "core/policy/redundancy.h"
#include "tools/ask/commands.h"
#include "tools/ask/drain_within.h"
#include "tools/ask/newest_first.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"
#include "tools/drained/manifest_writer.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kAskAgain = 200ms;
/// Time in which the drain retries failed files, even behind the rest of their last attempt.
constexpr auto kTriedAgain = 6s;

void show_progress(const msg::DrainNow::Reply& reply) {
  fmt::print(stderr, "\r{} files, {} still to drain{}   ", reply.pending_files,
             format_bytes(reply.pending_bytes),
             reply.failed_files > 0 ? fmt::format(", {} failed", reply.failed_files) : "");
}

/// Asks until no file is pending except failed files, or the time is over. Each question makes the
/// drain retry all failed files. So failures count only after kTriedAgain. `newest_first` chooses
/// the order where time may be short; nullptr: the manager's order.
Outcome<msg::DrainNow::Reply> wait_drained(client::Filesystem& filesystem, FileId below,
                                           std::uint32_t timeout_s, NewestFirst* newest_first,
                                           bool progress) {
  const auto began = std::chrono::steady_clock::now();
  const auto until = began + std::chrono::seconds(timeout_s);
  bool shown = false;
  for (;;) {
    auto reply = filesystem.drain(below);
    if (!reply) return failed("drain", reply.error());
    const auto now = std::chrono::steady_clock::now();
    const bool over = timeout_s > 0 && now > until;
    const bool all_fail = reply->pending_files == reply->failed_files && now - began > kTriedAgain;
    if (reply->pending_files == 0 || all_fail || over) {
      if (shown) std::fputc('\n', stderr);
      return *reply;
    }
    // When this fails, the drain itself goes on.
    if (newest_first != nullptr) (void)newest_first->step();
    if (progress) show_progress(*reply);
    shown = progress;
    sleep_for(kAskAgain);
  }
}

/// Looks up all files at and below a path in the drain directory. Returns the number of files.
Outcome<std::uint64_t> find_unsafe(const Located& located, client::Evicted evicted,
                                   std::vector<client::UnsafeFile>& out) {
  client::DrainedLookup lookup(*located.filesystem, evicted,
                               [&](client::UnsafeFile file) { out.push_back(std::move(file)); });
  Status asked;
  const auto walked = walk(*located.filesystem, located.path, located.attributes,
                           [&](const std::string& path, const Attributes& attributes) {
                             if (attributes.type != FileType::kRegular) return true;
                             asked = lookup.add(path, attributes.id);
                             return asked.has_value();
                           });
  if (!walked) return problem(walked.error());
  if (asked) asked = lookup.finish();
  if (!asked) return failed("looking up drained files", asked.error());
  return lookup.files();
}

/// Waits until all is drained, then looks the files up. If files were removed or changed meanwhile,
/// waits once more. `lost` gets the files whose chunks memory has lost, too.
Outcome<msg::DrainNow::Reply> wait_and_look_up(const Located& located, const DrainOptions& options,
                                               NewestFirst* newest_first,
                                               std::vector<client::UnsafeFile>& lost) {
  for (bool again = false;; again = true) {
    lost.clear();
    auto reply = wait_drained(*located.filesystem, located.attributes.id, options.timeout_s,
                              newest_first, !options.json && ::isatty(STDERR_FILENO) != 0);
    if (!reply || reply->pending_files > 0) return reply;
    // A new pool must not read all files of the drain directory before it may end.
    if (auto looked = find_unsafe(located, client::Evicted::kIsBelieved, lost); !looked) {
      if (!options.before_down) return problem(looked.error());
      fmt::print(stderr, "stdchk: not looked up again: {}\n", looked.error().text);
      lost.clear();
      return reply;
    }
    std::erase_if(lost, [](const client::UnsafeFile& file) { return !file.missing; });
    if (lost.empty() || again) return reply;
  }
}

/// Reports on standard error which files are undrained when the time is over.
void report_undrained(NewestFirst& newest_first) {
  if (!newest_first.look()) return;
  for (const std::string& line : missing_lines(newest_first.groups())) {
    fmt::print(stderr, "stdchk: not drained: {}\n", shown(line));
  }
}

}  // namespace

int run_drain(const DrainOptions& options) {
  if (!options.within.empty()) {
    const auto seconds = parse_seconds(options.within);
    if (seconds && *seconds > 0) return drain_within(options, *seconds);
    return complain(
        fmt::format("--within {}: it must be a time such as 90s or 5m", options.within));
  }
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  if (filesystem.config().drain_directory.empty()) {
    return complain("this pool has no drain directory; start it with: stdchk up --drain DIR");
  }
  Outcome<msg::DrainNow::Reply> reply = msg::DrainNow::Reply{};
  std::vector<client::UnsafeFile> lost;
  // A site has many nodes that wait for one pool. Only the node that writes manifests orders the
  // drain.
  const bool orders = options.wait && options.timeout_s > 0 && !options.no_manifest;
  NewestFirst newest_first(filesystem, located->path, located->attributes);
  if (options.wait) {
    reply = wait_and_look_up(*located, options, orders ? &newest_first : nullptr, lost);
  } else if (auto asked = filesystem.drain(located->attributes.id)) {
    reply = *asked;
  } else {
    return complain(describe(asked.error()));
  }
  if (!reply) return complain(reply.error().text);
  if (options.json) {
    print({{"pending_files", reply->pending_files},
           {"pending_bytes", reply->pending_bytes},
           {"failed_files", reply->failed_files}});
  } else {
    fmt::print("{} files, {} to drain\n", reply->pending_files, format_bytes(reply->pending_bytes));
  }
  if (reply->failed_files > 0) {
    fmt::print(stderr,
               "stdchk: {} files could not be drained and will be tried again; see the "
               "benefactors' logs and the space in {}\n",
               reply->failed_files, filesystem.config().drain_directory);
    return kExitNo;
  }
  if (options.wait && reply->pending_files > 0) {
    if (orders) report_undrained(newest_first);
    fmt::print(stderr, "stdchk: the drain was not done within {} s\n", options.timeout_s);
    return kExitNo;
  }
  for (const client::UnsafeFile& file : lost) {
    fmt::print(
        stderr,
        "stdchk: {} was removed or changed in {}, and is not in memory: it cannot be drained "
        "again\n",
        file.path, filesystem.config().drain_directory);
  }
  if (!lost.empty() && !options.before_down) return kExitNo;
  if (!options.wait || options.no_manifest) return kExitGood;
  const auto written = ManifestWriter(filesystem.config().drain_directory)
                           .write(filesystem, located->path, located->attributes);
  return written ? kExitGood : complain(written.error().text);
}

int run_safe(const SafeOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  std::vector<client::UnsafeFile> found;
  const auto files = find_unsafe(*located, client::Evicted::kIsCompared, found);
  if (!files) return complain(files.error().text);
  nlohmann::json unsafe = nlohmann::json::array();
  for (const client::UnsafeFile& file : found) {
    // A cached answer may be slightly outdated.
    const auto now = filesystem.resolve(file.path).value_or(Attributes{});
    const auto debt = filesystem.debt(now.id, now.version);
    const std::string has = redundancy_text(now.copies);
    const std::uint64_t lacks = debt ? debt->bytes : 0;
    const std::string_view state = drain_name(now.drain);
    if (!options.json) {
      fmt::print("not safe: {} ({}{}; copies={}{})\n", shown(file.path),
                 file.missing ? "removed or changed in the drain directory; now " : "", state, has,
                 lacks == 0 ? "" : ", " + format_bytes(lacks) + " to be made");
    }
    unsafe.push_back({{"path", file.path},
                      {"drain", state},
                      {"missing", file.missing},
                      {"copies", has},
                      {"lacking_bytes", lacks}});
  }
  const bool safe = unsafe.empty();
  if (options.json) {
    print({{"safe", safe}, {"files", *files}, {"unsafe", unsafe}});
  } else if (safe && *files == 0) {
    fmt::print("No files here: nothing can be lost.\n");
  } else if (safe) {
    fmt::print("safe: {} file{} drained and verified\n", *files, *files == 1 ? "" : "s");
  }
  if (!options.json && filesystem.config().drain_directory.empty()) {
    fmt::print("This pool has no drain directory: no file in it is safe.\n");
  }
  return safe ? kExitGood : kExitNo;
}

}  // namespace stdchk::tools
