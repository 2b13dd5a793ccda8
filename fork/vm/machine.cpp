#include "fork/vm/machine.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/exec_words.h"
#include "core/files/log_end.h"

namespace stdchk::fork::vm {
namespace {

constexpr Duration kAnswerMax = std::chrono::seconds(60);
constexpr std::size_t kLastWordsBytes = 600;

void wait_a_little() { ::usleep(1000); }

/// In the child: nothing but calls that are safe after fork(2) in a program with threads.
[[noreturn]] void become(char* const* argv, char* const* environment, int log, int tap,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY);
  ::dup2(nothing, 0);
  ::dup2(log, 1);
  ::dup2(log, 2);
  if (tap >= 0) ::fcntl(tap, F_SETFD, 0);  // QEMU gets it by its number
  ::execvpe(argv[0], argv, environment);
  ::dprintf(2, "%s cannot be started: %s\n", argv[0], std::strerror(errno));
  ::_exit(127);
}

}  // namespace

Outcome<Machine> Machine::start(const QemuCommand& command, const Place& place) {
  const auto failed = [&](const std::string& what) {
    return problem(fmt::format("{}: {}", what, std::strerror(errno)));
  };
  if (::mkdir(place.folder.c_str(), 0700) != 0) return failed(place.folder);
  const std::vector<std::string> words = command.at(place);
  const std::vector<char*> argv = exec_words(words);
  std::vector<char*> environment;
  environment.reserve(place.environment.size() + 1);
  for (const std::string& name : place.environment)
    environment.push_back(const_cast<char*>(name.c_str()));
  // QEMU sees each name once: the loader takes the last LD_PRELOAD.
  const auto is_given = [&](const char* line) {
    const char* const end = std::strchr(line, '=');
    return end != nullptr &&
           std::any_of(place.environment.begin(), place.environment.end(), [&](const auto& given) {
             return given.starts_with(std::string_view(line, end + 1));
           });
  };
  for (char** line = environ; *line != nullptr; line++) {
    if (!is_given(*line)) environment.push_back(*line);
  }
  environment.push_back(nullptr);
  const Descriptor log(
      ::open((place.folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return failed(place.folder + "/log");
  const pid_t self = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failed("fork");
  if (pid == 0) become(argv.data(), environment.data(), log.get(), place.port.tap, self);
  return Machine(place, pid, Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))));
}

Machine& Machine::operator=(Machine&& other) noexcept {
  if (this == &other) return *this;
  end();
  place_ = std::move(other.place_);
  pid_ = std::exchange(other.pid_, -1);
  pidfd_ = std::move(other.pidfd_);
  monitor_ = std::move(other.monitor_);
  return *this;
}

Machine::~Machine() { end(); }

void Machine::end() {
  if (!pidfd_) return;
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  ::waitpid(pid_, nullptr, 0);
  pidfd_ = Descriptor();
  std::error_code ignored;
  std::filesystem::remove_all(place_.folder, ignored);
}

std::string Machine::last_words() const {
  return end_of_log(place_.folder + "/log", kLastWordsBytes);
}

Outcome<void> Machine::connect() {
  auto monitor = Monitor::connect(place_.folder + "/qmp", pidfd_.get(), kAnswerMax);
  if (!monitor)
    return problem(fmt::format("{}. QEMU said: {}", monitor.error().text, last_words()));
  monitor_ = std::move(*monitor);
  return {};
}

Outcome<void> Machine::execute_command(const std::string& command) {
  if (auto done = monitor_->execute(command, nullptr, kAnswerMax); !done)
    return problem(done.error());
  return {};
}
Outcome<void> Machine::pause() { return execute_command("stop"); }
Outcome<void> Machine::resume() { return execute_command("cont"); }

Outcome<void> Machine::ignore_shared(bool on) {
  const nlohmann::json capabilities{
      {"capabilities",
       nlohmann::json::array({{{"capability", "x-ignore-shared"}, {"state", on}}})}};
  auto set = monitor_->execute("migrate-set-capabilities", capabilities, kAnswerMax);
  if (!set) return problem(set.error());
  return {};
}

Outcome<void> Machine::save(const std::string& path) {
  if (auto set = ignore_shared(place_.memory == Memory::kShared); !set) return set;
  auto rate = monitor_->execute("migrate-set-parameters",
                                {{"max-bandwidth", std::int64_t{1} << 40}}, kAnswerMax);
  if (!rate) return problem(rate.error());
  auto begun = monitor_->execute("migrate", {{"uri", "exec:cat >'" + path + "'"}}, kAnswerMax);
  if (!begun) return problem(begun.error());
  const auto until = std::chrono::steady_clock::now() + kAnswerMax;
  for (;;) {
    auto state = monitor_->execute("query-migrate", nullptr, kAnswerMax);
    if (!state) return problem(state.error());
    const std::string status = state->value("status", "");
    if (status == "completed") return {};
    if (status == "failed" || std::chrono::steady_clock::now() > until) {
      return problem("the machine's state cannot be saved: " + state->value("error-desc", status));
    }
    wait_a_little();
  }
}

Outcome<void> Machine::load(const std::string& path, Memory saved) {
  if (auto set = ignore_shared(saved == Memory::kShared); !set) return set;
  auto begun =
      monitor_->execute("migrate-incoming", {{"uri", "exec:cat '" + path + "'"}}, kAnswerMax);
  if (!begun) return problem(begun.error());
  return {};
}

Outcome<void> Machine::wait_loaded() {
  const auto until = std::chrono::steady_clock::now() + kAnswerMax;
  for (;;) {
    auto state = monitor_->execute("query-status", nullptr, kAnswerMax);
    if (!state) return problem(fmt::format("{}. QEMU said: {}", state.error().text, last_words()));
    const std::string status = state->value("status", "");
    if (status == "running") return {};
    if (status == "paused" || status == "prelaunch") return resume();
    if (std::chrono::steady_clock::now() > until) {
      return problem("the machine's state is not loaded within a minute");
    }
    wait_a_little();
  }
}

}  // namespace stdchk::fork::vm
