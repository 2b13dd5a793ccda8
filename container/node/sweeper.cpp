#include "container/node/sweeper.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <sstream>

#include "container/box/control_group.h"
#include "container/box/network.h"

namespace stdchk::container {
namespace {

/// Longest wait for the end of the processes of a group. The kernel ends them without help.
constexpr auto kGroupsMax = std::chrono::seconds(60);

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) text.append(buffer.data(), static_cast<std::size_t>(n));
    if (n == 0 || (n < 0 && errno != EINTR)) return text;
  }
}

/// Runs as the sweeper's process. It closes the files that it has inherited from the daemon's
/// starter, because the starter may wait for their end.
[[noreturn]] void sweep(int pipe, const std::string& tag, const std::string& work) {
  ::setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(null, fd);
  std::istringstream networks(read_all(pipe));
  for (std::string text; std::getline(networks, text);) {
    const auto network = parse_network(text);
    if (network) JobNetwork(*network).remove_after(tag);
  }
  remove_control_groups(tag, kGroupsMax);
  // The job's folder goes, too, where it is empty now: on hosts without the coordinator.
  ::rmdir(work.c_str());
  ::rmdir(std::filesystem::path(work).parent_path().c_str());
  ::_exit(0);
}

}  // namespace

Outcome<Sweeper> Sweeper::start(const std::string& tag, const std::string& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return problem(errno_text("pipe"));
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return problem(errno_text("fork"));
  if (child == 0) {
    write_end = Descriptor();
    sweep(read_end.get(), tag, work);
  }
  return Sweeper(child, std::move(write_end));
}

void Sweeper::will_need(const NetworkDescription& network) const {
  // Without the peers, the descriptions of hundreds of restarts fit into the buffer of a pipe.
  NetworkDescription own = network;
  own.peers.clear();
  const std::string text = text_of(own) + "\n";
  (void)!::write(pipe_.get(), text.data(), text.size());
}

void Sweeper::finish() {
  pipe_ = Descriptor();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace stdchk::container
