#include "benefactor/memory/log_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::benefactor {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kStep = limits::kMiB;

std::uint64_t rounded_up(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

/// Reserves addresses only: the kernel charges PROT_NONE pages to no process (mmap(2)).
std::byte* reserve(std::uint64_t bytes) {
  void* const mapping =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return mapping == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapping);
}

}  // namespace

LogMemory::LogMemory(LogRoom room) : room_(std::move(room)) {
  room_.bytes_max = std::max(room_.bytes_max, room_.base_bytes);
  // The kernel may refuse addresses for `bytes_max` (RLIMIT_AS). It may still grant `base_bytes`.
  for (const std::uint64_t wanted : {room_.bytes_max, room_.base_bytes}) {
    if (wanted == 0 || data_ != nullptr) continue;
    mapped_bytes_ = rounded_up(wanted, kPage);
    data_ = reserve(mapped_bytes_);
    room_.bytes_max = data_ == nullptr ? 0 : wanted;
  }
  room_.base_bytes = std::min(room_.base_bytes, room_.bytes_max);
  if (room_.base_bytes == 0) return;
  const std::uint64_t base = rounded_up(room_.base_bytes, kPage);
  if (::mprotect(data_, base, PROT_READ | PROT_WRITE) != 0) {
    room_.base_bytes = room_.bytes_max = 0;
    return;
  }
  taken_bytes_ = base;
  std::memset(data_, 0, base);
}

LogMemory::~LogMemory() {
  if (data_ != nullptr) ::munmap(data_, mapped_bytes_);
}

bool LogMemory::ensure(std::uint64_t bytes) {
  if (bytes > room_.bytes_max) return false;
  if (bytes <= taken_bytes_) return true;
  const std::uint64_t wanted = std::min(rounded_up(bytes, kStep), mapped_bytes_);
  const std::uint64_t more = wanted - taken_bytes_;
  if (room_.may_grow && !room_.may_grow(more)) return false;
  if (::mprotect(data_ + taken_bytes_, more, PROT_READ | PROT_WRITE) != 0) return false;
  taken_bytes_ = wanted;
  return true;
}

void LogMemory::trim(std::uint64_t bytes) {
  const std::uint64_t kept = std::min(
      std::max(rounded_up(room_.base_bytes, kPage), rounded_up(bytes, kStep)), mapped_bytes_);
  if (kept >= taken_bytes_) return;
  const std::uint64_t gone = taken_bytes_ - kept;
  ::madvise(data_ + kept, gone, MADV_DONTNEED);
  // A failed mprotect() costs no memory: madvise() has returned the pages.
  (void)::mprotect(data_ + kept, gone, PROT_NONE);
  taken_bytes_ = kept;
}

}  // namespace stdchk::benefactor
