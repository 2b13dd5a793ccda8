#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/redundancy.h"
#include "core/units.h"
#include "tools/commands.h"
#include "tools/connection.h"
#include "tools/manifest_writer.h"
#include "tools/show.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kAskAgain = 200ms;
/// Time for what failed before to be tried again, also behind what is left of its last attempt.
constexpr auto kTriedAgain = 6s;

void show_progress(const msg::DrainNow::Reply& reply) {
  fmt::print(stderr, "\r{} files, {} still to drain{}   ", reply.pending_files,
             format_bytes(reply.pending_bytes),
             reply.failed_files > 0 ? fmt::format(", {} failed", reply.failed_files) : "");
}

/// Asks until nothing is pending, or nothing but failures, or the time is over. Each question has
/// all that failed tried again; failures from before the first one say nothing.
Outcome<msg::DrainNow::Reply> wait_drained(client::Filesystem& filesystem, FileId below,
                                           std::uint32_t timeout_s, bool progress) {
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
    if (progress) show_progress(*reply);
    shown = progress;
    sleep_for(kAskAgain);
  }
}

}  // namespace

int run_drain(const DrainOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  if (filesystem.config().drain_directory.empty()) {
    return complain("this pool has no drain directory; start it with: stdchk up --drain DIR");
  }
  Outcome<msg::DrainNow::Reply> reply = msg::DrainNow::Reply{};
  if (options.wait) {
    reply = wait_drained(filesystem, located->attributes.id, options.timeout_s,
                         !options.json && ::isatty(STDERR_FILENO) != 0);
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
    fmt::print(stderr, "stdchk: the drain was not done within {} s\n", options.timeout_s);
    return kExitNo;
  }
  if (!options.wait || options.no_manifest) return kExitGood;
  const auto written = ManifestWriter(filesystem.config().drain_directory)
                           .write(filesystem, located->path, located->attributes);
  return written ? kExitGood : complain(written.error().text);
}

int run_safe(const SafeOptions& options) {
  auto located = locate(options.pool, options.path);
  if (!located) return complain(located.error().text);
  client::Filesystem& filesystem = *located->filesystem;
  nlohmann::json unsafe = nlohmann::json::array();
  std::uint64_t files = 0;
  auto walked =
      walk(filesystem, located->path, located->attributes,
           [&](const std::string& path, const Attributes& attributes) {
             if (attributes.type != FileType::kRegular) return true;
             ++files;
             // What a cache says of a directory may be a moment old; this may not.
             auto fresh = filesystem.resolve(path);
             const Attributes& now = fresh ? *fresh : attributes;
             if (fresh && now.drain == DrainState::kDrained && now.version > 0) {
               return true;
             }
             const auto debt = filesystem.debt(now.id, now.version);
             const std::string has = redundancy_text(now.copies);
             const std::uint64_t lacks = debt ? debt->bytes : 0;
             if (!options.json) {
               fmt::print("not safe: {} ({}; copies={}{})\n", path, drain_name(now.drain), has,
                          lacks == 0 ? "" : ", " + format_bytes(lacks) + " to be made");
             }
             unsafe.push_back({{"path", path},
                               {"drain", drain_name(now.drain)},
                               {"copies", has},
                               {"lacking_bytes", lacks}});
             return true;
           });
  if (!walked) return complain(walked.error().text);
  const bool safe = unsafe.empty();
  if (options.json) {
    print({{"safe", safe}, {"files", files}, {"unsafe", unsafe}});
  } else if (safe) {
    fmt::print("safe: {} file{} drained and verified\n", files, files == 1 ? "" : "s");
  } else if (filesystem.config().drain_directory.empty()) {
    fmt::print("This pool has no drain directory: nothing in it is safe.\n");
  }
  return safe ? kExitGood : kExitNo;
}

}  // namespace stdchk::tools
