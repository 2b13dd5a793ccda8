#include "container/criu/criu.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

namespace stdchk::container {
namespace {

constexpr std::size_t kErrorsShown = 3;
/// Files that were deleted while open are kept in the image up to this size.
constexpr const char* kGhostBytesMax = "256M";

/// Major and minor number of "MAJOR.MINOR...".
std::pair<int, int> numbers_of(const std::string& version) {
  std::pair<int, int> found{0, 0};
  std::sscanf(version.c_str(), "%d.%d", &found.first, &found.second);
  return found;
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string criu_version_of(const std::string& text) {
  const std::string label = "Version: ";
  const std::size_t at = text.find(label);
  if (at == std::string::npos) return {};
  const std::size_t end = text.find_first_of(" \n", at + label.size());
  return text.substr(at + label.size(), end == std::string::npos ? end : end - at - label.size());
}

bool criu_is_new_enough(const std::string& version, const std::string& kernel) {
  // Linux 6.16 answers SO_PASSCRED of a TCP socket with EOPNOTSUPP. CRIU 4.2 no longer asks for it.
  constexpr std::pair kStrict{6, 16}, kFixed{4, 2}, kOldest{3, 18};
  const auto have = numbers_of(version);
  return have >= (numbers_of(kernel) >= kStrict ? kFixed : kOldest);
}

std::string criu_errors(const std::string& log) {
  std::deque<std::string> last;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("Error ");
    if (at == std::string::npos) continue;
    // No fault: without the right to raise its own limit, CRIU continues.
    if (line.find("RLIMIT_NOFILE") != std::string::npos) continue;
    last.push_back(line.substr(at));
    if (last.size() > kErrorsShown) last.pop_front();
  }
  std::string text;
  for (const auto& line : last) text += (text.empty() ? "" : "; ") + line;
  return text;
}

Outcome<std::string> Criu::version() const {
  auto said = run_program({.words = {program_, "--version"}});
  if (!said) {
    return problem("CRIU cannot be run: " + said.error().text +
                   ". Install Debian's package criu, or name the program with --criu.");
  }
  std::string version = criu_version_of(*said);
  utsname system{};
  ::uname(&system);
  if (!criu_is_new_enough(version, system.release)) {
    return problem(
        fmt::format("CRIU {} cannot save TCP sockets on Linux {}; version 4.2 or later is needed "
                    "(Debian 14, or "
                    "scripts/trixie-root)",
                    version, system.release));
  }
  return version;
}

Outcome<void> Criu::dump(pid_t init, const std::string& folder, const std::string& net_namespace,
                         Duration deadline) const {
  auto done = run_program(
      {.words = {program_, "dump", "--tree", std::to_string(init), "--images-dir", folder,
                 "--tcp-established", "--network-lock", "skip", "--manage-cgroups=ignore",
                 "--leave-running", "--file-locks", "--link-remap", "--ghost-limit", kGhostBytesMax,
                 "-v2", "--log-file", "dump.log"},
       .net_namespace = net_namespace,
       .deadline = deadline});
  if (done) return {};
  const std::string errors = criu_errors(text_of_file(folder + "/dump.log"));
  return problem(errors.empty() ? done.error().text : "CRIU cannot save the processes: " + errors);
}

Outcome<pid_t> Criu::restore(const std::string& folder, const std::string& root,
                             const std::string& net_namespace, Duration deadline,
                             bool on_demand) const {
  const std::string pid_file = folder + "/pid";
  std::remove(pid_file.c_str());
  ProgramCall call{
      .words = {program_, "restore", "--images-dir", folder, "--root", root, "--tcp-established",
                "--network-lock", "skip", "--manage-cgroups=ignore", "--file-locks", "--link-remap",
                "--restore-detached", "--leave-stopped", "--pidfile", pid_file, "-v2", "--log-file",
                "restore.log"},
      .net_namespace = net_namespace,
      .deadline = deadline};
  if (on_demand) call.words.emplace_back("--lazy-pages");
  const auto done = run_program(call);
  if (!done) {
    const std::string errors = criu_errors(text_of_file(folder + "/restore.log"));
    return problem(errors.empty() ? done.error().text
                                  : "CRIU cannot load the processes: " + errors);
  }
  pid_t pid = 0;
  const std::string text = text_of_file(pid_file);
  std::from_chars(text.data(), text.data() + text.size(), pid);
  if (pid <= 0) return problem("CRIU has left no process id in " + pid_file);
  return pid;
}

std::string Criu::memory_socket(const std::string& folder) { return folder + "/lazy-pages.socket"; }

Outcome<void> Criu::serve_memory(const std::string& folder, Duration deadline,
                                 const std::atomic<bool>& cancelled,
                                 const std::function<void(pid_t)>& watch) const {
  const auto done = run_program(
      {.words = {program_, "lazy-pages", "--images-dir", folder, "-v2", "--log-file", "memory.log"},
       .deadline = deadline,
       .cancelled = &cancelled,
       .watch = watch});
  if (done) return {};
  const std::string errors = criu_errors(text_of_file(folder + "/memory.log"));
  return problem(errors.empty() ? done.error().text
                                : "CRIU cannot load memory on demand: " + errors);
}

}  // namespace stdchk::container
