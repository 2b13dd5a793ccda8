#include "fork/pager/clone.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "fork/pager/faults.h"

namespace stdchk::pager {
namespace {

Descriptor open_process(std::int32_t pid) {
  if (pid <= 0) return {};
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

bool is_userfault(int fd) {
  std::array<char, 64> name{};
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = ::readlink(path.c_str(), name.data(), name.size());
  return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) ==
                           "anon_inode:[userfaultfd]";
}

Clone::Clone(const CloneRecord& record, std::shared_ptr<Image> image, Descriptor faults,
             Descriptor socket, std::uint32_t least, std::uint32_t most)
    : id_(record.id),
      pid_(record.pid),
      image_(std::move(image)),
      faults_(std::move(faults)),
      socket_(std::move(socket)),
      process_(open_process(socket_ ? record.pid : 0)),
      record_(record),
      runs_(least, most) {}

CloneRecord Clone::record() const {
  const MutexLock lock(mutex_);
  return record_;
}

std::optional<uffd_msg> Clone::next_event() {
  uffd_msg event{};
  for (;;) {
    const ssize_t got = ::read(faults_.get(), &event, sizeof(event));
    if (got == sizeof(event)) return event;
    if (got >= 0 || errno != EINTR) return std::nullopt;
  }
}

std::optional<std::uint64_t> Clone::offset_of(std::uint64_t address) const {
  const MutexLock lock(mutex_);
  return record_.regions.offset_of(address);
}

std::optional<BlockRange> Clone::blocks_of(std::uint64_t offset, std::uint64_t length) const {
  const MutexLock lock(mutex_);
  if (length == 0 || offset > record_.length || length > record_.length - offset) {
    return std::nullopt;
  }
  const std::uint64_t from = record_.offset + offset;
  const std::uint64_t until = std::min(from + length, image_->size_bytes());
  if (from >= until) return std::nullopt;
  const std::uint64_t first = from / kBlockBytes;
  return BlockRange{first, (until + kBlockBytes - 1) / kBlockBytes - first};
}

std::uint32_t Clone::blocks_ahead(std::uint64_t block) {
  const MutexLock lock(mutex_);
  return runs_.touched(block);
}

void Clone::moved(std::uint64_t from, std::uint64_t to, std::uint64_t length) {
  const MutexLock lock(mutex_);
  if (record_.regions.move(from, to, length)) return;
  log::warning(
      "Process {} has moved a mapping of image {} in more than {} parts; a page of it will not be "
      "fetched.",
      pid_, image_->source().name(), Regions::kRegionsMax);
}

void Clone::wake(std::uint64_t address) const {
  uffdio_range range{address, kPageBytes};
  static_cast<void>(::ioctl(faults_.get(), UFFDIO_WAKE, &range));
}

void Clone::wake_all() const {
  const CloneRecord now = record();
  for (std::uint32_t i = 0; i < now.regions.count; ++i) {
    uffdio_range range{now.regions.all[i].address, now.regions.all[i].length};
    static_cast<void>(::ioctl(faults_.get(), UFFDIO_WAKE, &range));
  }
}

Clone::Denial Clone::deny(std::uint64_t address) const {
  PoisonRange poison;
  poison.range = {address, kPageBytes};
  if (::ioctl(faults_.get(), kPoison, &poison) == 0) return Denial::kDenied;
  // EEXIST: another thread's fault was denied, or the page has arrived. EAGAIN: an event waits.
  if (errno == EEXIST || errno == EAGAIN) {
    wake(address);
    return Denial::kWoken;
  }
  const bool signalled =
      process_ && ::syscall(SYS_pidfd_send_signal, process_.get(), SIGBUS, nullptr, 0) == 0;
  return signalled ? Denial::kDenied : Denial::kNotSignalled;
}

void Clone::deny_range(const BlockRange& blocks) const {
  const CloneRecord now = record();
  const std::uint64_t from = blocks.first * kBlockBytes;
  const std::uint64_t until = blocks.end() * kBlockBytes;
  for (std::uint32_t i = 0; i < now.regions.count; ++i) {
    const Region& region = now.regions.all[i];
    std::uint64_t at = std::max(from, region.offset);
    const std::uint64_t end = std::min(until, region.offset + region.length);
    while (at < end) {
      PoisonRange poison;
      poison.range = {region.address + (at - region.offset), end - at};
      if (::ioctl(faults_.get(), kPoison, &poison) == 0) break;
      if (errno != EEXIST && errno != EAGAIN) return;
      // The kernel has poisoned pages up to one that is mapped already. The next turn begins at
      // that page, and a turn that has poisoned nothing skips it.
      at += poison.updated > 0 ? static_cast<std::uint64_t>(poison.updated) : kPageBytes;
    }
  }
}

bool Clone::is_alive() const {
  // A copy to an address that is never registered: ENOENT while the process lives, then ESRCH.
  std::array<std::byte, kPageBytes> page{};
  uffdio_copy copy{};
  copy.dst = kPageBytes;
  copy.src = reinterpret_cast<std::uintptr_t>(page.data());
  copy.len = kPageBytes;
  return ::ioctl(faults_.get(), UFFDIO_COPY, &copy) == 0 || errno != ESRCH;
}

}  // namespace stdchk::pager
