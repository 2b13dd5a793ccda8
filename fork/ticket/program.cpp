#include "fork/ticket/program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>
#include <utility>

#include "core/base/descriptor.h"
#include "core/base/exec_words.h"
#include "core/base/log.h"

namespace stdchk::fork {
namespace {

constexpr std::chrono::seconds kAnswerTime{10};
constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 20;

/// Reads until the end, or until the deadline. False: the deadline.
bool read_all(int fd, std::string& out) {
  const auto end = std::chrono::steady_clock::now() + kAnswerTime;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd readable{fd, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&readable, 1, static_cast<int>(left.count())) == 0)
      return false;
    char bytes[4096];
    const ssize_t n = ::read(fd, bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    if (out.size() < kAnswerBytesMax) out.append(bytes, static_cast<std::size_t>(n));
  }
}

}  // namespace

pid_t spawn(const std::vector<std::string>& words, int in, int out) {
  const std::vector<char*> argv = exec_words(words);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, 0);
  if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, 1);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  errno = error;
  return error == 0 ? pid : -1;
}

Outcome<std::string> output_of(const std::vector<std::string>& words) {
  const std::string name = words[0];
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return problem(name + ": no pipe");
  const Descriptor reading(pipe[0]);
  Descriptor writing(pipe[1]);
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const pid_t pid = spawn(words, nothing.get(), pipe[1]);
  if (pid < 0) return problem(fmt::format("{} cannot be started: {}.", name, std::strerror(errno)));
  writing = Descriptor();
  std::string said;
  const bool in_time = read_all(reading.get(), said);
  if (!in_time) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) return problem(fmt::format("{} did not answer within 10 s.", name));
  if (status != 0) return problem(fmt::format("{} failed: {}", name, said));
  return said;
}

Outcome<std::vector<Placement>> parse_placements(std::string_view text, std::uint32_t most) {
  std::vector<Placement> placements;
  std::uint32_t total = 0;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Placement placement;
    std::string rest;
    if (!(words >> placement.host)) continue;
    if (!(words >> placement.count) || words >> rest) {
      return problem(fmt::format("The line \"{}\" is not \"HOST COUNT\".", line));
    }
    if (placement.host == ".") placement.host.clear();
    placement.count = std::min(placement.count, most - total);
    total += placement.count;
    if (placement.count > 0) placements.push_back(std::move(placement));
  }
  return placements;
}

Outcome<std::vector<Placement>> ProgramAllocator::request(std::uint64_t ticket,
                                                          const Demand& demand) {
  const auto said =
      output_of({program_, "request", std::to_string(ticket), std::to_string(demand.count),
                 std::to_string(demand.clone_bytes), demand.stays_here ? "here" : "anywhere"});
  if (!said) return problem(said.error());
  auto placements = parse_placements(*said, demand.count);
  if (!placements) return problem(program_ + ": " + placements.error().text);
  if (!placements->empty()) held_.insert(ticket);
  return placements;
}

void ProgramAllocator::release(std::uint64_t ticket) {
  if (held_.erase(ticket) == 0) return;
  if (const auto said = output_of({program_, "release", std::to_string(ticket)}); !said) {
    log::warning("{}", said.error().text);
  }
}

std::string ProgramAllocator::describe() const {
  const auto said = output_of({program_, "describe"});
  return said ? *said : said.error().text;
}

}  // namespace stdchk::fork
