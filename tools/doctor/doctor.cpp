#include "tools/doctor/doctor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "core/base/units.h"
#include "tools/base/process.h"

namespace stdchk::tools {
namespace {

using Kind = Finding::Kind;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A value of /proc/meminfo (proc(5)) in its own unit: kB, or pages for HugePages_*.
std::uint64_t meminfo(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key + ":")) continue;
    return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10);
  }
  return 0;
}

/// The word in brackets: "always [madvise] never" gives "madvise".
std::string chosen_word(const std::string& line) {
  const auto begin = line.find('[');
  const auto end = line.find(']');
  if (begin == std::string::npos || end == std::string::npos) return line;
  return line.substr(begin + 1, end - begin - 1);
}

std::string find_in_path(const std::string& name) {
  const char* const path = std::getenv("PATH");
  for (const std::string& folder : split(path == nullptr ? "" : path, ':')) {
    std::string full = fmt::format("{}/{}", folder, name);
    if (::access(full.c_str(), X_OK) == 0) return full;
  }
  return "";
}

Finding fuse_device() {
  const int fd = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fd >= 0) {
    ::close(fd);
    return {Kind::kGood, "FUSE device", "/dev/fuse can be opened", ""};
  }
  const int code = errno;
  if (code == ENOENT || code == ENODEV || code == ENXIO) {
    return {Kind::kBad, "FUSE device", "/dev/fuse is not there",
            "load the kernel module (as root: modprobe fuse); in a container, start it with "
            "--device /dev/fuse"};
  }
  return {Kind::kBad, "FUSE device", fmt::format("/dev/fuse: {}", std::strerror(code)),
          "let this user open it: the group of /dev/fuse, or its mode 0666, is what is usual"};
}

Finding fuse_helper() {
  if (::geteuid() == 0) {
    return {Kind::kGood, "mounting", "this is root: no helper is needed", ""};
  }
  const std::string helper = find_in_path("fusermount3");
  struct stat status;
  if (helper.empty()) {
    return {Kind::kBad, "mounting", "fusermount3 is not in PATH",
            "install it (Debian: apt-get install fuse3)"};
  }
  if (::stat(helper.c_str(), &status) == 0 && (status.st_mode & S_ISUID) == 0) {
    return {Kind::kBad, "mounting", helper + " is not set-user-id root",
            "as root: chmod u+s " + helper};
  }
  return {Kind::kGood, "mounting", helper, ""};
}

Finding memory() {
  const std::uint64_t available = meminfo("MemAvailable") * 1024;
  return {available < 256 * (1ULL << 20) ? Kind::kBad : Kind::kGood, "memory",
          fmt::format("{} available of {}", format_bytes(available),
                      format_bytes(meminfo("MemTotal") * 1024)),
          ""};
}

Finding huge_pages() {
  const std::string transparent =
      chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  const std::uint64_t reserved = meminfo("HugePages_Free");
  if (transparent == "always" || transparent == "madvise") {
    return {Kind::kGood, "huge pages",
            fmt::format("transparent for anonymous memory ({}): --backing anonymous uses them; {} "
                        "reserved are free for --backing hugetlb",
                        transparent, reserved),
            ""};
  }
  if (reserved > 0) {
    return {Kind::kNote, "huge pages",
            fmt::format("not transparent ({}), {} reserved are free", transparent, reserved),
            "use --backing hugetlb"};
  }
  return {Kind::kNote, "huge pages", fmt::format("none (transparent: {})", transparent),
          "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; copies into lent "
          "memory become several times faster"};
}

Finding locked_memory() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    return {Kind::kGood, "locked memory", "not limited", ""};
  }
  return {Kind::kNote, "locked memory",
          fmt::format("at most {} a process", format_bytes(limit.rlim_cur)),
          "tcp and shm need none; verbs pins what benefactors lend and clients' windows: "
          "ulimit -l unlimited, or memlock in /etc/security/limits.conf"};
}

Finding open_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return {limit.rlim_max < 4096 ? Kind::kNote : Kind::kGood, "open files",
          fmt::format("{} a process, {} at most", limit.rlim_cur, limit.rlim_max),
          limit.rlim_max < 4096 ? "large pools need more: ulimit -n" : ""};
}

/// The kernel's own limit for an answer of a FUSE daemon. Afterwards the kernel ends the connection
/// (admin-guide/sysctl/fs.rst of Linux, since 6.15).
Finding request_timeout() {
  const std::string seconds = first_line("/proc/sys/fs/fuse/default_request_timeout");
  if (seconds.empty()) {
    return {Kind::kGood, "FUSE requests", "this kernel sets no bound for FUSE requests", ""};
  }
  if (seconds == "0") {
    return {Kind::kNote, "FUSE requests", "the kernel waits for any mount without end",
            "the guard of stdchk-mount bounds them; where that may be stopped, too, as root: "
            "sysctl fs.fuse.default_request_timeout=300"};
  }
  const bool is_short = std::strtoull(seconds.c_str(), nullptr, 10) < 60;
  return {is_short ? Kind::kNote : Kind::kGood, "FUSE requests",
          fmt::format("the kernel ends a mount that does not answer for {} s", seconds),
          is_short ? "a close over a slow network may take longer, as root: "
                     "sysctl fs.fuse.default_request_timeout=300"
                   : ""};
}

Finding programs(const std::string& invoked_as) {
  for (const char* name : {"stdchk-manager", "stdchk-benefactor", "stdchk-mount"}) {
    if (auto found = find_program(name, invoked_as); !found) {
      return {Kind::kBad, "programs", found.error().text, ""};
    }
  }
  return {Kind::kGood, "programs", "manager, benefactor and mount are found", ""};
}

}  // namespace

std::vector<Finding> examine_machine(const std::string& invoked_as) {
  return {programs(invoked_as), fuse_device(),   fuse_helper(), request_timeout(), memory(),
          huge_pages(),         locked_memory(), open_files()};
}

Outcome<void> check_mounting() {
  for (const Finding& finding : {fuse_device(), fuse_helper()}) {
    if (finding.kind != Kind::kBad) continue;
    return problem(
        "{}: {}; {}. Without FUSE start the pool with --no-mount. It then serves programs that use "
        "the C library (stdchk.h), drains images, and serves stdchk restart --to and stage-in",
        finding.what, finding.found, finding.remedy);
  }
  return {};
}

Outcome<void> check_memory(std::uint64_t memory_bytes) {
  const std::uint64_t available = meminfo("MemAvailable") * 1024;
  if (memory_bytes > available) {
    return problem(
        "the benefactors would take {}, but {} are available on this machine; lower "
        "--memory or --benefactors",
        format_bytes(memory_bytes), format_bytes(available));
  }
  return {};
}

}  // namespace stdchk::tools
