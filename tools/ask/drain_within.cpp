#include "tools/ask/drain_within.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/thread.h"
#include "tools/ask/newest_first.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/show.h"
#include "tools/drained/manifest_writer.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr auto kAskAgain = 200ms;

/// Findings are results of the working thread. The main thread reads them when the time is over.
struct Findings {
  std::vector<FileGroup> groups;  ///< in the order of need
  bool has_looked = false;
  bool is_drained = false;
  std::string trouble;  ///< last failure; empty: the last attempt succeeded
};

/// A Work drains files in a separate thread, because every call to the pool may hang.
///
/// Threads: run() in one thread; wait_until() and findings() in another.
class Work {
 public:
  explicit Work(DrainOptions options) : options_(std::move(options)) {}

  void run() {
    auto done = drain();
    const MutexLock lock(mutex_);
    if (!done) findings_.trouble = done.error().text;
    has_failed_ = !done;
    has_ended_ = true;
    changed_.notify_all();
  }

  /// Returns false when the work has not ended at `until`.
  bool wait_until(SteadyTime until) {
    MutexLock lock(mutex_);
    return changed_.wait_until(lock, until,
                               [this]() STDCHK_REQUIRES(mutex_) { return has_ended_; });
  }
  Findings findings() {
    const MutexLock lock(mutex_);
    return findings_;
  }
  /// Returns true when it is no use to try again.
  bool has_failed() {
    const MutexLock lock(mutex_);
    return has_failed_;
  }

 private:
  Outcome<void> drain() {
    auto located = locate(options_.pool, options_.path);
    if (!located) return problem(located.error());
    client::Filesystem& filesystem = *located->filesystem;
    if (filesystem.config().drain_directory.empty()) {
      return problem("this pool has no drain directory; start it with: stdchk up --drain DIR");
    }
    NewestFirst newest_first(filesystem, located->path, located->attributes);
    for (bool is_drained = false; !is_drained; sleep_for(is_drained ? 0ms : kAskAgain)) {
      auto pending = ask(filesystem, located->attributes.id, newest_first);
      const MutexLock lock(mutex_);
      findings_.trouble = pending ? "" : pending.error().text;
      is_drained = pending && *pending == 0;
      findings_.is_drained = is_drained;
      findings_.groups = newest_first.groups();
      findings_.has_looked = findings_.has_looked || pending.has_value();
    }
    if (options_.no_manifest) return {};
    const auto written = ManifestWriter(filesystem.config().drain_directory)
                             .write(filesystem, located->path, located->attributes);
    const MutexLock lock(mutex_);
    if (!written) findings_.trouble = "the manifests: " + written.error().text;
    return {};
  }

  /// Returns the number of files that are to be drained. The drain does not yield to writers while
  /// a request for all files is pending.
  static Outcome<std::uint64_t> ask(client::Filesystem& filesystem, FileId below,
                                    NewestFirst& newest_first) {
    const auto reply = filesystem.drain(below);
    if (!reply) return failed("drain", reply.error());
    // The final look must see the last drained file.
    const bool is_over = reply->pending_files == 0;
    if (auto done = is_over ? newest_first.look() : newest_first.step(); !done) {
      return problem(done.error());
    }
    return reply->pending_files;
  }

  const DrainOptions options_;
  Mutex mutex_;
  CondVar changed_;
  Findings findings_ STDCHK_GUARDED_BY(mutex_);
  bool has_ended_ STDCHK_GUARDED_BY(mutex_) = false;
  bool has_failed_ STDCHK_GUARDED_BY(mutex_) = false;
};

Json to_json(const Findings& findings, double seconds) {
  Json left = Json::array();
  for (const FileGroup& group : findings.groups) {
    if (group.missing == 0) continue;
    left.push_back({{"name", group.name},
                    {"set", group.is_set()},
                    {"complete", group.is_complete},
                    {"files", group.files},
                    {"missing_files", group.missing},
                    {"missing_bytes", group.missing_bytes}});
  }
  const FileGroup* safe = newest_safe_set(findings.groups);
  return {{"drained", findings.is_drained},
          {"seconds", seconds},
          {"safe_set", safe == nullptr ? Json() : Json(safe->name)},
          {"left", left}};
}

void show(const Findings& findings, double seconds, std::uint64_t allowed_s) {
  const FileGroup* safe = newest_safe_set(findings.groups);
  if (safe != nullptr) fmt::print("safe        {}\n", shown(safe->name));
  for (const std::string& line : missing_lines(findings.groups)) {
    fmt::print("left        {}\n", shown(line));
  }
  if (findings.is_drained) {
    fmt::print("All is drained that the policies ask for, after {:.1f} s.\n", seconds);
  } else {
    fmt::print("Not all is drained within {} s; the lines above say what is left.\n", allowed_s);
  }
}

}  // namespace

int drain_within(const DrainOptions& options, std::uint64_t seconds) {
  const auto began = std::chrono::steady_clock::now();
  // Shared, because a thread that hangs may outlive this function.
  const auto work = std::make_shared<Work>(options);
  std::thread thread = start_without_signals([work] { work->run(); });
  const bool has_ended = work->wait_until(began + std::chrono::seconds(seconds));
  const Findings findings = work->findings();
  const double took = seconds_since(began);
  int status = findings.is_drained ? kExitGood : kExitNo;
  if (work->has_failed()) {
    status = complain(findings.trouble);
  } else if (!findings.has_looked) {
    status = complain(fmt::format("the pool did not answer within {} s{}{}", seconds,
                                  findings.trouble.empty() ? "" : ": ", findings.trouble));
  } else {
    if (!findings.trouble.empty()) (void)complain(findings.trouble);
    if (options.json) {
      print(to_json(findings, took));
    } else {
      show(findings, took, seconds);
    }
  }
  if (has_ended) {
    thread.join();
    return status;
  }
  // The thread may hang in a call for longer than the caller has time.
  (void)std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace stdchk::tools
