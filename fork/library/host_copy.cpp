#include "fork/library/host_copy.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fork/library/daemon_call.h"

namespace stdchk::fork {
namespace {

using local::Kind;
using local::Record;

constexpr std::uint64_t kBytesMin = std::uint64_t{4} << 20;
constexpr std::uint64_t kAroundThread = std::uint64_t{256} << 10;

/// Removes `hole` from the ranges: memory that the copy needs before it can fetch its pages.
void take_out(FrozenCopy* frozen, MemoryRange hole) {
  const std::uint32_t count = frozen->range_count;
  for (std::uint32_t i = 0; i < count; i++) {
    MemoryRange& range = frozen->ranges[i];
    if (hole.end <= range.begin || range.end <= hole.begin) continue;
    const MemoryRange behind{std::min(range.end, std::max(hole.end, range.begin)), range.end};
    range.end = std::max(range.begin, std::min(hole.begin, range.end));
    if (behind.begin < behind.end && frozen->range_count < local::kRangesMax) {
      frozen->ranges[frozen->range_count++] = behind;
    }
  }
}

void find_ranges(FrozenCopy* frozen) {
  // Half of the room is left for parts that holes make.
  frozen->range_count = list_memory(kBytesMin, frozen->ranges, local::kRangesMax / 2);
  take_out(frozen, {frozen->room_begin, frozen->room_end});
  const auto thread = static_cast<std::uint64_t>(::pthread_self()) & ~std::uint64_t{4095};
  take_out(frozen, {thread - kAroundThread, thread + kAroundThread});
}

void advise(const FrozenCopy* frozen, int advice) {
  for (std::uint32_t i = 0; i < frozen->range_count; i++) {
    const MemoryRange& range = frozen->ranges[i];
    if (range.begin < range.end) {
      ::madvise(reinterpret_cast<void*>(range.begin), range.end - range.begin, advice);
    }
  }
}

/// On another host. Uses no memory but the room's, no allocation, and no function that waits for a
/// lock.
[[noreturn]] void resume_on_other_host(FrozenCopy* frozen) {
  const int faults = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK));
  uffdio_api api{};
  api.api = UFFD_API;
  api.features = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_EVENT_REMOVE |
                 UFFD_FEATURE_EVENT_UNMAP;
  if (faults < 0 || ::ioctl(faults, UFFDIO_API, &api) != 0) ::_exit(101);
  for (std::uint32_t i = 0; i < frozen->range_count; i++) {
    const MemoryRange& range = frozen->ranges[i];
    if (range.begin >= range.end) continue;
    uffdio_register wanted{};
    wanted.range = {range.begin, range.end - range.begin};
    wanted.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (::ioctl(faults, UFFDIO_REGISTER, &wanted) != 0) ::_exit(102);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, frozen->daemon_path, sizeof(frozen->daemon_path));
  const int daemon = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (::connect(daemon, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    ::_exit(103);
  Record record;
  record.kind = Kind::kMemory;
  record.ticket = frozen->ticket;
  record.token[0] = frozen->token[0];
  record.token[1] = frozen->token[1];
  if (send_record(daemon, record, faults) != 0) ::_exit(104);
  ::close(faults);
  serve(frozen, daemon);
}

/// In the copy for other hosts.
[[noreturn]] void stop_for_dump(FrozenCopy* frozen, int daemon) {
  advise(frozen, MADV_KEEPONFORK);
  Record record;
  record.kind = Kind::kImageReady;
  record.value_bytes = frozen->range_count * static_cast<std::uint32_t>(sizeof(MemoryRange));
  std::memcpy(record.value, frozen->ranges, record.value_bytes);
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd <= 2; fd++) ::dup2(nothing, fd);
  const int said = send_record(daemon, record);
  ::syscall(SYS_close_range, 3, ~0U, 0);
  if (said != 0) ::_exit(105);
  ::syscall(SYS_kill, ::syscall(SYS_getpid), SIGSTOP);  // dumped here, and restored on other hosts
  resume_on_other_host(frozen);
}

}  // namespace

void make_host_copy(FrozenCopy* frozen, int daemon) {
  // Children are born in the pid namespace of the last clone's sandbox. The copy must not end with
  // that clone.
  const int own = ::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  ::setns(own, CLONE_NEWPID);
  ::close(own);
  // Free memory of the heap has no pages then, so no host fetches it for new objects of its clones.
  ::malloc_trim(0);
  find_ranges(frozen);
  advise(frozen, MADV_WIPEONFORK);
  // Not fork(3), which lets the program's handlers run: in the copy their memory is empty.
  const long copy = ::syscall(SYS_fork);
  if (copy == 0) stop_for_dump(frozen, daemon);
  advise(frozen, MADV_KEEPONFORK);
  if (copy > 0) return;
  Record record;
  record.kind = Kind::kImageReady;
  record.error = errno;
  send_record(daemon, record);
}

}  // namespace stdchk::fork
