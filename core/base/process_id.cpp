#include "core/base/process_id.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace stdchk {

ProcessState read_process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second field is the name in parentheses, and may itself contain spaces and parentheses.
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos) return {};
  std::istringstream fields(text.substr(end_of_name + 1));
  ProcessState state;
  fields >> state.state >> state.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> state.start_ticks;
  return state;
}

ProcessId this_process() { return {::getpid(), read_process_state(::getpid()).start_ticks}; }

bool is_alive(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const ProcessState state = read_process_state(process.pid);
  return state.state != 'X' && state.state != 'Z' && state.start_ticks == process.start_ticks;
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(file, text);
  return text;
}

}  // namespace stdchk
