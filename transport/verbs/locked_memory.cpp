#include "transport/verbs/locked_memory.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

#include "transport/verbs/verbs.h"

namespace stdchk::transport::verbs {

namespace {

/// Returns the number behind `name` at the start of a line; 0 if there is none.
std::uint64_t field(std::string_view status, std::string_view name, int base) {
  std::size_t at = status.starts_with(name) ? 0 : std::string_view::npos;
  if (at != 0) {
    const std::size_t line = status.find("\n" + std::string(name));
    if (line == std::string_view::npos) return 0;
    at = line + 1;
  }
  std::string_view rest = status.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  std::uint64_t value = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  return value;
}

}  // namespace

Status LockedMemory::check(std::uint64_t bytes, const char* where) const {
  const std::uint64_t left = limit_bytes > pinned_bytes ? limit_bytes - pinned_bytes : 0;
  if (unlimited || bytes <= left) return {};
  return fail(Code::kMemlock, where);
}

Status check_lockable(std::uint64_t bytes) { return locked_memory().check(bytes, "verbs.memory"); }

LockedMemory locked_memory(std::string_view status, std::uint64_t limit_bytes) {
  const std::uint64_t capabilities = field(status, "CapEff:", 16);
  const bool may_lock = (capabilities >> CAP_IPC_LOCK & 1) != 0;
  return {.unlimited = may_lock || limit_bytes == ~std::uint64_t{0},
          .limit_bytes = limit_bytes,
          .pinned_bytes = field(status, "VmPin:", 10) * 1024};
}

LockedMemory locked_memory() {
  std::ostringstream status;
  status << std::ifstream("/proc/self/status").rdbuf();
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return locked_memory(status.str(),
                       limit.rlim_cur == RLIM_INFINITY ? ~std::uint64_t{0} : limit.rlim_cur);
}

}  // namespace stdchk::transport::verbs
