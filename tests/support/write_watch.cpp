#include "tests/support/write_watch.h"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::sim {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kWatches = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
constexpr bool kWatches = false;
#else
constexpr bool kWatches = true;
#endif
#else
constexpr bool kWatches = true;
#endif

/// The watches of this program. A signal's handler reads it, so it never grows.
constexpr std::size_t kWatchesMax = 64;
WriteWatch* watches[kWatchesMax];
std::uint64_t stamps_made = 0;
struct sigaction before {};

/// A fault at another address ends the program, as without a WriteWatch.
void on_fault(int, siginfo_t* info, void*) {
  if (WriteWatch::let_write(info->si_addr)) return;
  ::sigaction(SIGSEGV, &before, nullptr);
}

void install() {
  static bool is_installed = false;
  if (is_installed) return;
  is_installed = true;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  STDCHK_ASSERT(::sigaction(SIGSEGV, &action, &before) == 0);
}

}  // namespace

WriteWatch::WriteWatch(MutableByteSpan memory)
    : memory_(memory),
      is_protected_((memory.size() + kBlock - 1) / kBlock),
      stamps_(is_protected_.size()) {
  if (!kWatches) return;
  install();
  const auto place = std::ranges::find(watches, nullptr);
  STDCHK_ASSERT(place != std::end(watches));
  *place = this;
}

WriteWatch::~WriteWatch() {
  std::ranges::replace(watches, this, static_cast<WriteWatch*>(nullptr));
  if (kWatches) ::mprotect(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE);
}

/// Makes the blocks [first, end) read-only, and gives them a new stamp.
void WriteWatch::protect(std::size_t first, std::size_t end) {
  const std::size_t from = first * kBlock;
  const std::size_t to = std::min(end * kBlock, memory_.size());
  STDCHK_ASSERT(::mprotect(memory_.data() + from, to - from, PROT_READ) == 0);
  ++stamps_made;
  for (std::size_t i = first; i < end; ++i) {
    is_protected_[i] = 1;
    stamps_[i] = stamps_made;
  }
}

std::uint64_t WriteWatch::stamp(std::size_t offset, std::size_t length) {
  if (!kWatches) return ++stamps_made;
  std::uint64_t newest = 0;
  const std::size_t end = (offset + length + kBlock - 1) / kBlock;
  for (std::size_t i = offset / kBlock; i < end; ++i) {
    if (is_protected_[i] == 0) {
      std::size_t next = i + 1;
      while (next < end && is_protected_[next] == 0) ++next;
      protect(i, next);
    }
    newest = std::max(newest, stamps_[i]);
  }
  return newest;
}

bool WriteWatch::let_write(const void* address) {
  const auto at = static_cast<const std::byte*>(address);
  for (WriteWatch* const watch : watches) {
    if (watch == nullptr) continue;
    const MutableByteSpan memory = watch->memory_;
    if (at < memory.data() || at >= memory.data() + memory.size()) continue;
    const std::size_t block = static_cast<std::size_t>(at - memory.data()) / kBlock;
    // Writable, and it faults nevertheless: not a matter of this watch.
    if (watch->is_protected_[block] == 0) return false;
    watch->is_protected_[block] = 0;
    const std::size_t bytes = std::min(kBlock, memory.size() - block * kBlock);
    return ::mprotect(memory.data() + block * kBlock, bytes, PROT_READ | PROT_WRITE) == 0;
  }
  return false;
}

}  // namespace stdchk::sim
