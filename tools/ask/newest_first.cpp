#include "tools/ask/newest_first.h"

#include <algorithm>

#include "core/base/limits.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookEvery = 200ms;
constexpr int kShareOfTime = 10;  ///< a look takes at most one part in this number of the time
/// A failed file leaves the manager's queue and is asked for again after this time.
constexpr auto kAskAgain = 2s;
/// Files requested in advance. Enough files keep all benefactors busy until the next step. Too many
/// files delay a newer set.
constexpr std::size_t kFilesMin = 64;
constexpr std::size_t kFilesMax = 4096;
constexpr std::uint64_t kBytes = limits::kGiB;

}  // namespace

Outcome<void> NewestFirst::step() {
  if (std::chrono::steady_clock::now() < look_at_) return {};
  if (auto done = look(); !done) return done;
  return ask_for_first();
}

Outcome<void> NewestFirst::look() {
  const Time began = std::chrono::steady_clock::now();
  auto found = find_groups(filesystem_, path_, start_);
  const Time ended = std::chrono::steady_clock::now();
  look_at_ = ended + std::max<Duration>(kLookEvery, (ended - began) * kShareOfTime);
  if (!found) return problem(found.error());
  groups_ = std::move(*found);
  sort_by_need(groups_);
  return {};
}

Outcome<void> NewestFirst::ask_for_first() {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
  for (const FileGroup& group : groups_) {
    for (const FileId file : group.to_drain) {
      if (files == kFilesMax || (files >= kFilesMin && bytes > kBytes)) return {};
      ++files;
      bytes += group.missing_bytes / group.missing;
      if (auto asked = ask_for(file); !asked) return asked;
    }
  }
  return {};
}

/// Asks for the file, unless that was done a short time ago. A removed file is no error.
Outcome<void> NewestFirst::ask_for(FileId file) {
  const Time now = std::chrono::steady_clock::now();
  const auto [known, is_new] = asked_.try_emplace(file, now);
  if (!is_new && now < known->second + kAskAgain) return {};
  known->second = now;
  const auto reply = filesystem_.drain(file);
  if (!reply && reply.error().code != Code::kNotFound) return failed("drain", reply.error());
  return {};
}

}  // namespace stdchk::tools
