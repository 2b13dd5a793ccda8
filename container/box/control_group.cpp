#include "container/box/control_group.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "container/box/processes.h"
#include "core/base/log.h"
#include "core/base/process_id.h"

namespace stdchk::container {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRoot = "/sys/fs/cgroup";
constexpr std::uint64_t kPeriodUs = 100'000;
constexpr std::array kControllers{"memory", "cpu", "pids"};
constexpr auto kRemovalTurn = std::chrono::milliseconds(10);
constexpr std::size_t kNamedMax = 8;  ///< processes that an error names

bool is_version_2() { return ::access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0; }

std::string begin_of(const std::string& tag) { return "stdchk-" + tag + "-"; }

/// The folders in which groups are made: one of version 2, or one for each controller.
std::vector<std::string> parents() {
  if (is_version_2()) return {kRoot};
  std::vector<std::string> folders;
  for (const char* const each : kControllers) folders.push_back(fmt::format("{}/{}", kRoot, each));
  return folders;
}

Outcome<void> write_to(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  const bool good =
      fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  auto failed = problem(good ? std::string() : errno_text(path));
  if (fd >= 0) ::close(fd);
  if (!good) return failed;
  return {};
}

/// "7 (python3, state D)" for each process of the group.
std::string processes_in(const std::string& path) {
  std::ifstream list(path + "/cgroup.procs");
  std::string text;
  std::size_t named = 0;
  for (pid_t pid = 0; list >> pid;) {
    if (++named > kNamedMax) return text + ", and others";
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid)), name);
    if (!text.empty()) text += ", ";
    text += fmt::format("{} ({}, state {})", pid, name, read_process_state(pid).state);
  }
  return text.empty() ? "processes of another namespace, or groups" : text;
}

}  // namespace

Outcome<void> remove_group(const std::string& path, std::chrono::steady_clock::time_point until) {
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return {};
    if (errno != EBUSY) return problem(errno_text(path));
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(kRemovalTurn);
  }
  return problem(fmt::format(
      "the control group {} stays after {} ms. In it: {}. End them, then remove it with rmdir",
      path, (std::chrono::steady_clock::now() - began) / std::chrono::milliseconds(1),
      processes_in(path)));
}

ControlGroup::ControlGroup(const std::string& tag, std::uint32_t box)
    : name_(begin_of(tag) + std::to_string(box)) {}

Outcome<void> ControlGroup::make(const BoxLimits& limits) {
  remove();
  if (limits == BoxLimits{}) return {};
  made_ = true;
  const bool newer = is_version_2();
  if (newer) {
    // Changes nothing on a host whose systemd has enabled the controllers.
    auto enabled = write_to(std::string(kRoot) + "/cgroup.subtree_control", "+memory +cpu +pids");
    if (!enabled) return enabled;
  }
  for (const std::string& parent : parents()) {
    const std::string path = parent + "/" + name_;
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return problem(errno_text(path));
  }
  const auto file = [&](const char* controller, const char* name) {
    return newer ? fmt::format("{}/{}/{}", kRoot, name_, name)
                 : fmt::format("{}/{}/{}/{}", kRoot, controller, name_, name);
  };
  if (limits.memory_bytes > 0) {
    auto set = write_to(file("memory", newer ? "memory.max" : "memory.limit_in_bytes"),
                        std::to_string(limits.memory_bytes));
    if (!set) return set;
  }
  if (limits.cpu_percent > 0) {
    const std::uint64_t quota_us = limits.cpu_percent * kPeriodUs / 100;
    auto set = newer ? write_to(file("cpu", "cpu.max"), fmt::format("{} {}", quota_us, kPeriodUs))
                     : write_to(file("cpu", "cpu.cfs_quota_us"), std::to_string(quota_us));
    if (!set) return set;
  }
  if (limits.processes > 0) {
    return write_to(file("pids", "pids.max"), std::to_string(limits.processes));
  }
  return {};
}

Outcome<void> ControlGroup::add(pid_t init) const {
  if (!made_) return {};
  for (const std::string& parent : parents()) {
    for (const pid_t pid : processes_of(init)) {
      auto moved = write_to(parent + "/" + name_ + "/cgroup.procs", std::to_string(pid));
      if (!moved && ::access(fmt::format("/proc/{}", pid).c_str(), F_OK) == 0) return moved;
    }
  }
  return {};
}

void ControlGroup::remove() {
  if (!made_) return;
  const auto until = std::chrono::steady_clock::now() + kRemovalMax;
  for (const std::string& parent : parents()) {
    const auto removed = remove_group(parent + "/" + name_, until);
    if (!removed) log::warning("{}", removed.error().text);
  }
  made_ = false;
}

void remove_control_groups(const std::string& tag, Duration patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::error_code ignored;
  for (const std::string& parent : parents()) {
    for (const auto& entry : fs::directory_iterator(parent, ignored)) {
      if (!entry.path().filename().string().starts_with(begin_of(tag))) continue;
      const auto removed = remove_group(entry.path().string(), until);
      if (!removed) log::warning("{}", removed.error().text);
    }
  }
}

}  // namespace stdchk::container
