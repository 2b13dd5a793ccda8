#include "tools/base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/base/exec_words.h"
#include "core/base/units.h"
#include "core/runtime/reactor.h"

extern char** environ;

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr auto kEndPatience = 2s;

// Set by a signal handler, read by any thread.
std::atomic<int> term_count = 0, interrupt_count = 0, hangup_count = 0;
std::atomic<int> first_end_signal = 0;
std::atomic<Reactor*> stopped_by_signals = nullptr;
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<Reactor*>::is_always_lock_free);

void note_end_signal(int number) {
  int none = 0;
  first_end_signal.compare_exchange_strong(none, number);
  ++(number == SIGTERM ? term_count : number == SIGINT ? interrupt_count : hangup_count);
  if (Reactor* const reactor = stopped_by_signals) reactor->stop();
}

void handle_end_signals(int flags) {
  struct sigaction action {};
  action.sa_handler = note_end_signal;
  action.sa_flags = flags;
  for (const int signal : {SIGTERM, SIGINT}) ::sigaction(signal, &action, nullptr);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

/// Whether the real, effective, saved and file system users are this user: proc(5), "Uid" of
/// /proc/PID/status.
bool is_of_this_user(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/status");
  for (std::string word; file >> word;) {
    if (word != "Uid:") continue;
    for (int i = 0; i < 4; ++i) {
      uid_t user = 0;
      if (!(file >> user) || user != ::geteuid()) return false;
    }
    return true;
  }
  return false;
}

/// Whether the process sees the same files: paths in a container lead elsewhere.
bool sees_same_files(const std::string& pid) {
  std::error_code code;
  const fs::path theirs = fs::read_symlink("/proc/" + pid + "/ns/mnt", code);
  return !code && theirs == fs::read_symlink("/proc/self/ns/mnt", code);
}

std::vector<std::string> words_of(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// A ProcessHandle refers to one process, whatever process gets its pid later: pidfd_open(2), Linux
/// 5.3. The system call is made by number, because the C library's header does not suit C++ before
/// glibc 2.37.
class ProcessHandle {
 public:
  explicit ProcessHandle(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  ~ProcessHandle() {
    if (fd_ >= 0) ::close(fd_);
  }
  ProcessHandle(const ProcessHandle&) = delete;
  ProcessHandle& operator=(const ProcessHandle&) = delete;

  void send(int signal) const { ::syscall(SYS_pidfd_send_signal, fd_, signal, nullptr, 0); }
  /// Waits for the end for up to `longest`. True: ended, even as a zombie.
  bool wait_end(std::chrono::milliseconds longest) const {
    pollfd fd{fd_, POLLIN, 0};
    const auto until = std::chrono::steady_clock::now() + longest;
    for (;;) {
      const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(
          until - std::chrono::steady_clock::now());
      const int ready = ::poll(&fd, 1, static_cast<int>(std::max(rest, 0ms).count()));
      if (ready >= 0 || errno != EINTR) return ready == 1;
    }
  }

 private:
  int fd_;
};

/// Owns the attributes of a posix_spawn(3).
class Spawn {
 public:
  Spawn() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID);
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  void open(int fd, const char* path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, fd, path, flags, 0600);
  }
  /// Leaves the present folder, which a user may want to unmount.
  void leave_folder() { posix_spawn_file_actions_addchdir_np(&actions_, "/"); }
  void duplicate(int from, int to) { posix_spawn_file_actions_adddup2(&actions_, from, to); }
  Outcome<pid_t> run(const std::vector<std::string>& command) {
    const std::vector<char*> words = exec_words(command);
    pid_t pid = 0;
    const int code = posix_spawnp(&pid, words[0], &actions_, &attributes_, words.data(), environ);
    if (code != 0) return problem("{} cannot be started: {}", command[0], std::strerror(code));
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

struct Pipe {
  int read = -1;
  int write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read = ends[0];
      write = ends[1];
    }
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read >= 0) ::close(std::exchange(read, -1));
  }
  void close_write() {
    if (write >= 0) ::close(std::exchange(write, -1));
  }
};

/// Moves ready bytes between the pipes and the texts; true while any pipe is open.
bool exchange(Pipe& in, Pipe& out, Pipe& err, std::string_view& input, CommandOutput& output) {
  if (input.empty()) in.close_write();
  pollfd fds[3] = {{in.write, POLLOUT, 0}, {out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
  if (::poll(fds, 3, 50) < 0) return true;
  if ((fds[0].revents & (POLLOUT | POLLERR)) != 0) {
    const ssize_t n = ::write(in.write, input.data(), std::min<std::size_t>(input.size(), 4096));
    if (n > 0) input.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0) input = {};  // the command may close its input early
  }
  auto take = [](pollfd& fd, Pipe& pipe, std::string& text) {
    if ((fd.revents & (POLLIN | POLLHUP)) == 0) return;
    char buffer[4096];
    const ssize_t n = ::read(pipe.read, buffer, sizeof(buffer));
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
    if (n == 0) pipe.close_read();
  };
  take(fds[1], out, output.out);
  take(fds[2], err, output.err);
  return out.read >= 0 || err.read >= 0;
}

/// Ends a child that leads a process group, and the group. Sends SIGTERM first: a launcher such as
/// srun then ends its processes on other nodes.
void end_group(pid_t child) {
  ::kill(-child, SIGTERM);
  const auto until = std::chrono::steady_clock::now() + kEndPatience;
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > until) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, nullptr, 0);
      return;
    }
    sleep_for(5ms);
  }
}

}  // namespace

Outcome<ProcessId> start_detached(const std::string& program,
                                  const std::vector<std::string>& arguments,
                                  const std::string& log_path, int input) {
  Spawn spawn;
  if (input >= 0) {
    spawn.duplicate(input, 0);
  } else {
    spawn.open(0, "/dev/null", O_RDONLY);
  }
  spawn.open(1, log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW);
  spawn.duplicate(1, 2);
  spawn.leave_folder();
  std::vector<std::string> command{program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  auto pid = spawn.run(command);
  if (!pid) return problem(pid.error());
  // The child remains at least as a zombie until this process waits for it, so its start time can
  // be read.
  return ProcessId{*pid, read_process_state(*pid).start_ticks};
}

std::vector<FoundProcess> own_processes() {
  std::vector<FoundProcess> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    FoundProcess one;
    one.words = words_of(pid);
    if (one.words.empty() || !fs::path(one.words[0]).filename().string().starts_with("stdchk")) {
      continue;
    }
    if (!is_of_this_user(pid) || !sees_same_files(pid)) continue;
    one.id.pid = static_cast<pid_t>(std::stol(pid));
    const ProcessState state = read_process_state(one.id.pid);
    if (state.state == 'X' || state.state == 'Z') continue;
    one.id.start_ticks = state.start_ticks;
    one.parent = state.parent;
    found.push_back(std::move(one));
  }
  return found;
}

std::string began_text(const ProcessId& process) {
  if (!is_alive(process)) return {};
  double up_s = 0;
  std::ifstream("/proc/uptime") >> up_s;
  const double age_s =
      up_s - static_cast<double>(process.start_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  const std::time_t began = std::time(nullptr) - static_cast<std::time_t>(age_s);
  char text[32];
  std::tm local{};
  ::localtime_r(&began, &local);
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

End end_process(const ProcessId& process, Duration grace, int signal) {
  const ProcessHandle handle(process.pid);
  // Checked after the handle was taken, so the handle refers to the checked process.
  if (!is_alive(process)) return End::kWasGone;
  handle.send(signal);
  if (handle.wait_end(std::chrono::duration_cast<std::chrono::milliseconds>(grace))) {
    return End::kEnded;
  }
  handle.send(SIGKILL);
  return handle.wait_end(5s) ? End::kKilled : End::kStillThere;
}

Outcome<CommandOutput> run_command(const std::vector<std::string>& command,
                                   const std::string& input, Duration deadline,
                                   const std::function<bool()>& enough) {
  Pipe in;
  Pipe out;
  Pipe err;
  if (in.read < 0 || out.read < 0 || err.read < 0) {
    return problem("no pipe can be made: {}", std::strerror(errno));
  }
  Spawn spawn;
  spawn.duplicate(in.read, 0);
  spawn.duplicate(out.write, 1);
  spawn.duplicate(err.write, 2);
  auto pid = spawn.run(command);
  if (!pid) return problem(pid.error());
  in.close_read();
  out.close_write();
  err.close_write();
  ::signal(SIGPIPE, SIG_IGN);
  const auto until = std::chrono::steady_clock::now() + deadline;
  CommandOutput output;
  std::string_view rest = input;
  int status = 0;
  bool ended = false;
  bool pipes_open = true;
  while (!ended) {
    if (pipes_open) {
      pipes_open = exchange(in, out, err, rest, output);
    } else {
      sleep_for(5ms);
    }
    // Processes that it left in the background may hold the pipes open; only its own end counts.
    ended = ::waitpid(*pid, &status, WNOHANG) == *pid;
    if (ended) break;
    if (std::chrono::steady_clock::now() > until) {
      end_group(*pid);
      return problem("{} did not end within {} s", command[0],
                     std::chrono::duration_cast<std::chrono::seconds>(deadline).count());
    }
    if (enough && enough()) {
      end_group(*pid);
      return problem("{} was ended", command[0]);
    }
  }
  for (int turn = 0; turn < 64 && pipes_open; ++turn) {
    pollfd fds[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    if (::poll(fds, 2, 0) <= 0) break;
    pipes_open = exchange(in, out, err, rest, output);
  }
  output.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return output;
}

Outcome<std::string> find_program(const std::string& name, const std::string& invoked_as) {
  std::vector<fs::path> folders;
  if (const char* folder = std::getenv("STDCHK_BIN")) folders.emplace_back(folder);
  if (invoked_as.find('/') != std::string::npos) {
    folders.push_back(fs::path(invoked_as).parent_path());
  }
  std::error_code ignored;
  folders.push_back(fs::read_symlink("/proc/self/exe", ignored).parent_path());
  const char* const path = std::getenv("PATH");
  std::ranges::move(split(path == nullptr ? "" : path, ':'), std::back_inserter(folders));
  for (const auto& folder : folders) {
    const fs::path program = fs::absolute(folder / name, ignored);
    if (::access(program.c_str(), X_OK) == 0) return program.string();
  }
  return problem(
      "{} is not found beside this program nor in PATH; build or install it, or set "
      "STDCHK_BIN to its folder",
      name);
}

std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string shell_words(std::span<const std::string> words) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += ' ';
    text += shell_word(word);
  }
  return text;
}

void notice_end_signals() { handle_end_signals(0); }

void stop_on_end_signals(Reactor& reactor) {
  stopped_by_signals = &reactor;
  handle_end_signals(SA_RESTART);
}

bool asked_to_end() { return end_signals().count() > 0; }

EndSignals end_signals() { return {term_count, interrupt_count, hangup_count, first_end_signal}; }

void sleep_for(Duration duration) { std::this_thread::sleep_for(duration); }

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace stdchk::tools
