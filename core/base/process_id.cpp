#include "core/base/process_id.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <charconv>
#include <fstream>

#include "core/base/descriptor.h"

namespace stdchk {
namespace {

constexpr int kFields = 52;  // since Linux 3.5

/// More than any /proc/PID/stat has: each field is a number, except the name with at most 64 bytes.
constexpr std::size_t kTextBytesMax = 2048;

template <class T>
bool is_number(std::string_view text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool take_field(int field, std::string_view text, ProcessState& state) {
  switch (field) {
    case 3:
      if (text.size() != 1) return false;
      state.state = text.front();
      return true;
    case 4:
      return is_number(text, state.parent);
    case 9:
      return is_number(text, state.flags);
    case 22:
      return is_number(text, state.start_ticks);
    case 52:
      return is_number(text, state.exit_code);
    default:
      return true;
  }
}

}  // namespace

ProcessState parse_process_state(std::string_view text) {
  // The second field is the name in parentheses, and may itself contain spaces and parentheses.
  const auto end_of_name = text.rfind(')');
  if (end_of_name == std::string_view::npos) return {};
  text.remove_prefix(end_of_name + 1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  ProcessState state;
  for (int field = 3; field <= kFields; ++field) {
    if (text.empty()) return {};
    text.remove_prefix(1);  // the space before the field
    const std::string_view value = text.substr(0, text.find(' '));
    if (!take_field(field, value, state)) return {};
    text.remove_prefix(value.size());
  }
  return state;
}

ProcessState read_process_state(pid_t pid) {
  const Descriptor file(::open(fmt::format("/proc/{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
  char text[kTextBytesMax];
  const ssize_t length = file ? ::read(file.get(), text, sizeof(text)) : -1;
  if (length <= 0) return {};
  return parse_process_state({text, static_cast<std::size_t>(length)});
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
