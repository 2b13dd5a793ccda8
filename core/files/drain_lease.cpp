#include "core/files/drain_lease.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <vector>

#include "core/base/process_id.h"
#include "core/files/lease_text.h"

namespace stdchk {
namespace {

constexpr std::string_view kFirstLine = "stdchk drain lease 1";
constexpr std::size_t kTextBytesMax = 1024;

/// "pid:[4026531836]"; numbers of processes mean something within it.
std::string process_space() {
  std::array<char, 64> text{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "?";
}

std::string this_host() {
  std::array<char, 256> text{};
  ::gethostname(text.data(), text.size() - 1);
  return text.data();
}

/// Boot, name space of process numbers, number and start of this process.
std::string this_process_text() {
  const ProcessId process = this_process();
  return fmt::format("{} {} {} {}", boot_id(), process_space(), process.pid, process.start_ticks);
}

tl::unexpected<Problem> refused(std::string_view what) {
  const int number = errno;
  return problem(Code::kSystem, "drain_lease", number,
                 fmt::format("{} failed: {}", what, std::strerror(number)));
}

/// The whole text of the lease; ENOENT: there is none. A lease of another user is refused, because
/// in a folder that all may write to anybody could keep pools from draining.
Outcome<std::string> read_lease(const DrainDirectory& directory, const DrainFolder& root,
                                const std::string& name) {
  const auto above = root.own_status();
  if (!above) return tl::unexpected(above.error());
  std::vector<std::uint32_t> owners{above->st_uid, 0, ::geteuid()};
  if (const auto maker = directory.file_maker(root)) owners.push_back(maker->uid);
  const auto file = root.open(name, Access::kRead, {{}, {}, owners, false});
  if (!file) return tl::unexpected(file.error());
  std::string text(kTextBytesMax, '\0');
  const ssize_t got = ::pread(file->file.get(), text.data(), text.size(), 0);
  if (got < 0) return refused("reading the lease");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

/// Replaces the text of an open lease. The text keeps its length from one renewal to the next.
Outcome<void> write_lease(const Descriptor& file, const std::string& text) {
  const ssize_t written = ::pwrite(file.get(), text.data(), text.size(), 0);
  if (written != static_cast<ssize_t>(text.size())) {
    if (written >= 0) errno = ENOSPC;
    return refused("writing the lease");
  }
  if (::fsync(file.get()) != 0) return refused("syncing the lease");
  return {};
}

}  // namespace

LeaseHolder LeaseHolder::of_this_process(std::string pool, std::string manager) {
  return {std::move(pool), std::move(manager), this_host(), this_process_text()};
}

bool LeaseHolder::may_be_running() const {
  std::istringstream fields(process);
  std::string boot, space;
  ProcessId named;
  if (!(fields >> boot >> space >> named.pid >> named.start_ticks)) return true;
  if (boot != boot_id() || space != process_space()) return true;
  return is_alive(named);
}

std::string lease_text(const LeaseHolder& holder, std::uint64_t renewals) {
  return fmt::format("{}\npool {}\nmanager {}\nhost {}\nprocess {}\nrenewals {:020}\n", kFirstLine,
                     holder.pool, holder.manager, holder.host, holder.process, renewals);
}

LeaseHolder parse_lease(const std::string& text) {
  std::istringstream lines(text);
  std::string line;
  LeaseHolder out;
  if (!std::getline(lines, line) || line != kFirstLine) return {};
  const std::array<std::pair<std::string_view, std::string*>, 4> members{
      {{"pool ", &out.pool},
       {"manager ", &out.manager},
       {"host ", &out.host},
       {"process ", &out.process}}};
  for (const auto& [name, member] : members) {
    if (!std::getline(lines, line) || !line.starts_with(name)) return {};
    *member = line.substr(name.size());
  }
  return out;
}

std::string DrainLease::text() const { return lease_text(own_, renewals_); }

DrainLease::State DrainLease::unknown(const Problem& problem) {
  reason_ = problem.text;
  return State::kUnknown;
}

bool LeaseWatch::is_free(const std::string& text, const LeaseHolder& holder, Time now) {
  if (!since_ || text != text_) {
    text_ = text;
    since_ = now;
  }
  const bool is_stale = now - *since_ >= DrainLease::kStaleAfter;
  return is_stale || (!holder.manager.empty() && !holder.may_be_running());
}

DrainLease::State DrainLease::step(Time now) {
  const auto root = directory_.open();
  if (!root) return unknown(root.error());
  const auto there = read_lease(directory_, *root, kLeaseName);
  if (!there && there.error().error.os_errno == ENOENT) return take(*root);
  if (!there) return unknown(there.error());
  seen_ = parse_lease(*there);
  const bool heir = inherits_ && seen_.pool == own_.pool;
  if (seen_.manager == own_.manager || heir) return replace(*root, *there);
  held_ = false;
  if (!watch_.is_free(*there, seen_, now)) return State::kOthers;
  return replace(*root, *there);
}

/// Makes the lease, which does not exist.
DrainLease::State DrainLease::take(const DrainFolder& root) {
  const auto file = root.create(kLeaseName);
  if (!file && file.error().error.os_errno == EEXIST) return State::kOthers;
  if (!file) return unknown(file.error());
  ++renewals_;
  if (const auto written = write_lease(file->file, text()); !written) {
    // The unfinished file would look like the lease of another pool.
    ::unlinkat(root.get(), kLeaseName, 0);
    return unknown(written.error());
  }
  inode_ = file->status.st_ino;
  held_ = true;
  inherits_ = false;
  watch_.reset();
  return State::kOurs;
}

/// Renews this process's lease, or replaces a lease that had the text `text`.
DrainLease::State DrainLease::replace(const DrainFolder& root, const std::string& text) {
  if (held_ && seen_ == own_) {
    const auto file = root.open(kLeaseName, Access::kReadWrite, {inode_, {}, {}, true});
    if (!file) return unknown(file.error());
    ++renewals_;
    if (const auto written = write_lease(file->file, this->text()); !written) {
      return unknown(written.error());
    }
    return State::kOurs;
  }
  // Only one of several pools renames the file that all of them have read.
  const std::string aside = fmt::format("{}.{}", kLeaseName, own_.manager);
  if (::renameat(root.get(), kLeaseName, root.get(), aside.c_str()) != 0) {
    return errno == ENOENT ? State::kOthers : unknown(refused("renaming the lease").value());
  }
  const auto moved = read_lease(directory_, root, aside);
  const bool right = moved && *moved == text;
  // Another pool took the lease in between. If a third has made a new one already, that stays.
  if (!right && ::linkat(root.get(), aside.c_str(), root.get(), kLeaseName, 0) != 0 &&
      errno != EEXIST) {
    return unknown(refused("giving the lease back").value());
  }
  ::unlinkat(root.get(), aside.c_str(), 0);
  return right ? take(root) : State::kOthers;
}

void DrainLease::release() {
  if (!held_) return;
  held_ = false;
  const auto root = directory_.open();
  if (!root) return;
  const auto there = read_lease(directory_, *root, kLeaseName);
  if (there && parse_lease(*there) == own_) ::unlinkat(root->get(), kLeaseName, 0);
}

}  // namespace stdchk
