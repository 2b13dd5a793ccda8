#include "tests/conformance/watch.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include <atomic>
#include <string_view>

#include "core/base/assert.h"

namespace stdchk::conformance {

namespace {

constexpr int kFramesMax = 32;

struct Watch {
  MutableByteSpan memory;
  pthread_t owner{};
  std::atomic<bool> seen{false};
  bool by_owner = false;
  void* frames[kFramesMax];
  int frame_count = 0;
  struct sigaction before {};
};
Watch current;  // a signal handler can reach its data only through a global

void on_fault(int number, siginfo_t* info, void* context) {
  const auto* const address = static_cast<const std::byte*>(info->si_addr);
  if (address < current.memory.data() || address >= current.memory.data() + current.memory.size()) {
    // A fault outside the watched memory: let it end the process as usual.
    ::sigaction(number, &current.before, nullptr);
    return;
  }
  (void)context;
  ::mprotect(current.memory.data(), current.memory.size(), PROT_READ | PROT_WRITE);
  if (current.seen.exchange(true)) return;
  current.by_owner = ::pthread_equal(::pthread_self(), current.owner) != 0;
  current.frame_count = ::backtrace(current.frames, kFramesMax);
}

bool contains(const char* text, std::string_view part) {
  return text != nullptr && std::string_view(text).find(part) != std::string_view::npos;
}

/// Sanitizers link their own memcpy into the program.
bool copies(const void* function) {
  return function == reinterpret_cast<const void*>(&::memcpy) ||
         function == reinterpret_cast<const void*>(&::memmove);
}

/// Finds the innermost caller outside the C library (memcpy, the signal trampoline) and this file.
Writer judge() {
  Dl_info self{};
  STDCHK_ASSERT(::dladdr(reinterpret_cast<void*>(&watch), &self) != 0);
  bool before_fault = true;  // the handler's own frames come first
  for (int i = 0; i < current.frame_count; ++i) {
    Dl_info info{};
    const bool known = ::dladdr(current.frames[i], &info) != 0;
    const bool own = known && info.dli_fbase == self.dli_fbase;
    const bool c_library = !known || copies(info.dli_saddr) || contains(info.dli_fname, "/libc.") ||
                           contains(info.dli_fname, "vdso") || contains(info.dli_fname, "libgcc");
    if (before_fault) {
      if (c_library) before_fault = false;  // the signal trampoline
      continue;
    }
    if (c_library) continue;
    return own ? Writer::kOwnCode : Writer::kFabricLibrary;
  }
  return Writer::kOwnCode;
}

}  // namespace

void watch(MutableByteSpan memory) {
  void* warm[1];
  ::backtrace(warm, 1);  // loads its libraries now rather than within the handler
  current.memory = memory;
  current.owner = ::pthread_self();
  current.seen = false;
  current.frame_count = 0;
  struct sigaction action {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  STDCHK_ASSERT(::sigaction(SIGSEGV, &action, &current.before) == 0);
  STDCHK_ASSERT(::mprotect(memory.data(), memory.size(), PROT_READ) == 0);
}

Writer end_watch() {
  STDCHK_ASSERT(::mprotect(current.memory.data(), current.memory.size(), PROT_READ | PROT_WRITE) ==
                0);
  ::sigaction(SIGSEGV, &current.before, nullptr);
  current.memory = {};
  if (!current.seen) return Writer::kNobodySeen;
  if (!current.by_owner) return Writer::kOtherThread;
  return judge();
}

}  // namespace stdchk::conformance
