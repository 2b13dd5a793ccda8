// The C interface's questions after copies and the drain.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "client/api/is_gone.h"
#include "client/blocking/drained_lookup.h"
#include "client/library/errors.h"
#include "client/library/objects.h"
#include "client/library/paths.h"

using namespace stdchk::client::library;
using namespace std::chrono_literals;
using stdchk::Attributes;
using stdchk::Code;
using stdchk::FileId;
using stdchk::Status;
using stdchk::client::Evicted;
using stdchk::client::Filesystem;
using stdchk::client::UnsafeFile;

namespace {

constexpr auto kAskAgain = 100ms;
/// Each question makes the drain retry failed files, so a failure counts only after this time.
constexpr auto kTriedAgain = 6s;

using Clock = std::chrono::steady_clock;

/// Calls `visit` for each regular file at or below `path`. Stops at the first failure.
Status each_file(Filesystem& filesystem, const std::string& path, const Attributes& attributes,
                 const std::function<Status(const std::string&, const Attributes&)>& visit) {
  if (attributes.type == stdchk::FileType::kRegular) return visit(path, attributes);
  if (attributes.type != stdchk::FileType::kDirectory) return {};
  const auto entries = filesystem.read_directory(attributes.id);
  if (!entries && stdchk::client::is_gone(entries.error())) return {};
  if (!entries) return stdchk::fail(entries.error());
  for (const auto& entry : *entries) {
    const std::string child = path.empty() ? entry.name : path + "/" + entry.name;
    STDCHK_TRY(each_file(filesystem, child, entry.attributes, visit));
  }
  return {};
}

/// kWouldBlock while a file's drain is pending. kDrainFailed when all pending files fail again and
/// again.
Status drained(Filesystem& filesystem, FileId below, Clock::time_point began) {
  STDCHK_ASSIGN(const auto reply, filesystem.drain(below));
  if (reply.pending_files == 0) return {};
  const bool fails = reply.failed_files == reply.pending_files;
  if (fails && Clock::now() - began > kTriedAgain)
    return stdchk::fail(Code::kDrainFailed, "stdchk_wait");
  return stdchk::fail(Code::kWouldBlock, "stdchk_wait");
}

/// kWouldBlock while a file lacks copies that can be made.
Status copied(Filesystem& filesystem, const std::string& path, const Attributes& start) {
  return each_file(
      filesystem, path, start, [&](const std::string&, const Attributes& file) -> Status {
        const auto debt = filesystem.debt(file.id, file.version);
        // A newer version, or none: the file changed since it was listed.
        if (!debt && debt.error().code == Code::kStale)
          return stdchk::fail(Code::kWouldBlock, "stdchk_wait");
        if (!debt && debt.error().code == Code::kNotFound) return {};
        if (!debt) return stdchk::fail(debt.error());
        if (debt->impossible) {
          return stdchk::fail(Code::kNoSpace, "stdchk_wait: fewer benefactors than copies");
        }
        return debt->chunks == 0 ? Status{} : stdchk::fail(Code::kWouldBlock, "stdchk_wait");
      });
}

/// Repeats `step` while it says kWouldBlock, at most until `end`.
Status repeat(Clock::time_point end, const std::function<Status()>& step) {
  for (;;) {
    Status status = step();
    if (status || status.error().code != Code::kWouldBlock) return status;
    const auto now = Clock::now();
    if (now >= end) return stdchk::fail(Code::kDeadline, "stdchk_wait");
    std::this_thread::sleep_for(std::min<Clock::duration>(kAskAgain, end - now));
  }
}

}  // namespace

extern "C" {

int stdchk_safe(stdchk_pool* pool, const char* path, struct stdchk_safety* out) {
  *out = {};
  Filesystem& filesystem = *pool->filesystem;
  const auto start = find(filesystem, path, LastLink::kFollow);
  if (!start) return failed(start.error());
  const auto on_unsafe = [out](const UnsafeFile& file) {
    if (file.missing) ++out->missing_files;
    if (out->unsafe_files++ > 0) return;
    const std::size_t count = std::min(file.path.size(), sizeof(out->first_unsafe) - 1);
    std::memcpy(out->first_unsafe, file.path.data(), count);
  };
  stdchk::client::DrainedLookup lookup(filesystem, Evicted::kIsCompared, on_unsafe);
  Status asked = each_file(
      filesystem, path, *start,
      [&](const std::string& each, const Attributes& file) { return lookup.add(each, file.id); });
  if (asked) asked = lookup.finish();
  out->files = lookup.files();
  if (!asked) return failed(asked.error());
  out->safe = out->unsafe_files == 0 && !filesystem.config().drain_directory.empty() ? 1 : 0;
  return 0;
}

int stdchk_drain(stdchk_pool* pool, const char* path) {
  const auto start = find(*pool->filesystem, path, LastLink::kFollow);
  if (!start) return failed(start.error());
  if (pool->filesystem->config().drain_directory.empty()) {
    return failed(
        Code::kUnsupported,
        "stdchk_drain: this pool has no drain directory; start it with: stdchk up --drain DIR.");
  }
  const auto reply = pool->filesystem->drain(start->id);
  return reply ? 0 : failed(reply.error());
}

int stdchk_wait(stdchk_pool* pool, const char* path, unsigned flags, unsigned timeout_ms) {
  const auto began = Clock::now();
  const auto end = began + std::chrono::milliseconds(timeout_ms);
  if (flags == 0 || (flags & ~unsigned{STDCHK_WAIT_COPIES | STDCHK_WAIT_DRAIN}) != 0) {
    return failed(Code::kInvalidArgument,
                  "stdchk_wait: `flags` are STDCHK_WAIT_COPIES, STDCHK_WAIT_DRAIN, or both.");
  }
  if ((flags & STDCHK_WAIT_DRAIN) != 0 && stdchk_drain(pool, path) != 0) return -1;
  const Status waited = repeat(end, [&]() -> Status {
    STDCHK_ASSIGN(const auto start, find(*pool->filesystem, path, LastLink::kFollow));
    if ((flags & STDCHK_WAIT_COPIES) != 0) STDCHK_TRY(copied(*pool->filesystem, path, start));
    if ((flags & STDCHK_WAIT_DRAIN) != 0) STDCHK_TRY(drained(*pool->filesystem, start.id, began));
    return {};
  });
  return ended(waited);
}

}  // extern "C"
