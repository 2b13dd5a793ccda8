#include "fork/vm/remote_machines.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "core/base/log.h"
#include "core/base/units.h"
#include "fork/ticket/program.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::chrono::seconds kStartTime{120};
constexpr std::size_t kHeardBytesMax = 16 * 1024;

/// The family's name on the other host: names of families have no dots.
std::string name_there(std::string name) {
  std::replace(name.begin(), name.end(), '.', '-');
  return name;
}

}  // namespace

RemoteMachines::RemoteMachines(Watches& watches, RemoteParts parts, Ended ended)
    : watches_(watches), parts_(std::move(parts)), ended_(std::move(ended)) {}

RemoteMachines::~RemoteMachines() {
  for (auto& [name, clone] : clones_) {
    if (clone.out) watches_.remove(clone.out.get());
    clone.in = Descriptor();
  }
  for (auto& [name, clone] : clones_) {
    if (clone.shell > 0) ::waitpid(clone.shell, nullptr, WNOHANG);
  }
  std::error_code ignored;
  for (const auto& [ticket, folder] : images_) std::filesystem::remove_all(folder, ignored);
}

std::string RemoteMachines::image_folder(const std::string& name, std::uint64_t ticket) const {
  char host[65] = {};
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}/{}.{}.{}.{}", parts_.image.folder, host, ::getpid(), name, ticket);
}

void RemoteMachines::start(const Wanted& wanted, const std::string& image) {
  images_[wanted.ticket] = image;
  Clone& clone = clones_[wanted.name];
  clone.wanted = wanted;
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0) return end(clone, End::kFailed, 0, "no pipe");
  const Descriptor their_in(in[0]);
  clone.in = Descriptor(in[1]);
  if (::pipe2(out, O_CLOEXEC) != 0) return end(clone, End::kFailed, 0, "no pipe");
  clone.out = Descriptor(out[0]);
  const Descriptor their_out(out[1]);
  std::vector<std::string> words = split(parts_.shell, ' ');
  words.push_back(wanted.host);
  for (std::string& word : split(parts_.program, ' ')) words.push_back(std::move(word));
  for (std::string word :
       {std::string("start"), image, name_there(wanted.name), fmt::format("--id={}", wanted.id),
        fmt::format("--bound={}:{}", wanted.ticket, wanted.count)}) {
    words.push_back(std::move(word));
  }
  if (!parts_.network.empty()) words.push_back("--network=" + parts_.network);
  if (!parts_.image.pager.empty()) {
    words.push_back("--pager=" + parts_.image.pager);
    words.push_back("--pool-path=" + parts_.image.pool_path + image.substr(image.rfind('/')));
  }
  clone.shell = spawn(words, their_in.get(), their_out.get());
  if (clone.shell < 0)
    return end(clone, End::kFailed, 0, fmt::format("{}: {}", parts_.shell, std::strerror(errno)));
  ::fcntl(clone.out.get(), F_SETFL, O_NONBLOCK);
  watches_.add(clone.out.get(), [this, name = wanted.name] { on_words(name); });
}

void RemoteMachines::on_words(const std::string& name) {
  const auto found = clones_.find(name);
  if (found == clones_.end()) return;
  Clone& clone = found->second;
  char bytes[4096];
  const ssize_t n = ::read(clone.out.get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0 || clone.heard.size() > kHeardBytesMax)
    return end(clone, End::kFailed, 0, fmt::format("The host {} was lost.", clone.wanted.host));
  clone.heard.append(bytes, static_cast<std::size_t>(n));
  for (std::size_t stop = 0; (stop = clone.heard.find('\n')) != std::string::npos;) {
    const std::string line = clone.heard.substr(0, stop);
    clone.heard.erase(0, stop + 1);
    on_line(clone, line);
    if (clone.state == State::kEnded) return;
  }
}

void RemoteMachines::on_line(Clone& clone, const std::string& line) {
  std::istringstream in(line);
  std::string word;
  in >> word;
  if (word == "running" && clone.state == State::kStarting) {
    clone.state = State::kRunning;
  } else if (word == "failed") {
    end(clone, End::kFailed, 0, line.substr(word.size()));
  } else if (word == "ended") {
    std::uint32_t how = 0;
    int status = 0;
    std::string value;
    if (!(in >> how >> status >> value) || how > static_cast<std::uint32_t>(End::kFailed)) return;
    end(clone, static_cast<End>(how), status, value == "-" ? "" : value);
  }
}

void RemoteMachines::end(Clone& clone, End how, int status, const std::string& value) {
  if (clone.state == State::kEnded) return;
  clone.state = State::kEnded;
  if (clone.out) watches_.remove(clone.out.get());
  clone.in = Descriptor();
  clone.out = Descriptor();
  if (clone.shell > 0) {
    ::kill(clone.shell, SIGTERM);
    while (::waitpid(clone.shell, nullptr, 0) < 0 && errno == EINTR) {
    }
    clone.shell = -1;
  }
  if (how == End::kFailed) {
    clone.problem = fmt::format("{} on {}: {}", clone.wanted.name, clone.wanted.host, value);
    log::warning("{}", clone.problem);
  }
  ended_(clone.wanted.ticket, clone.wanted.id, how, status, how == End::kFailed ? "" : value);
}

std::string RemoteMachines::wait_running(std::uint64_t ticket) {
  const auto until = std::chrono::steady_clock::now() + kStartTime;
  for (;;) {
    std::vector<pollfd> waited;
    std::vector<std::string> names;
    for (const auto& [name, clone] : clones_) {
      if (clone.wanted.ticket != ticket || clone.state != State::kStarting) continue;
      waited.push_back({clone.out.get(), POLLIN, 0});
      names.push_back(name);
    }
    if (waited.empty()) break;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    const int ready =
        left.count() > 0 ? ::poll(waited.data(), waited.size(), static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    for (std::size_t i = 0; i < names.size(); i++) {
      if (ready <= 0) {
        end(clones_.at(names[i]), End::kFailed, 0, "It did not run within 120 s.");
      } else if (waited[i].revents != 0) {
        on_words(names[i]);
      }
    }
  }
  for (const auto& [name, clone] : clones_) {
    if (clone.wanted.ticket == ticket && !clone.problem.empty()) return clone.problem;
  }
  return {};
}

bool RemoteMachines::kill(const std::string& name) {
  const auto found = clones_.find(name);
  if (found == clones_.end() || found->second.state == State::kEnded) return false;
  end(found->second, End::kKilled, 0, "");
  return true;
}

void RemoteMachines::drop(std::uint64_t ticket) {
  for (auto& [name, clone] : clones_) {
    if (clone.wanted.ticket == ticket) end(clone, End::kKilled, 0, "");
  }
  std::erase_if(clones_, [&](const auto& each) { return each.second.wanted.ticket == ticket; });
  const auto image = images_.find(ticket);
  if (image == images_.end()) return;
  std::error_code ignored;
  std::filesystem::remove_all(image->second, ignored);
  images_.erase(image);
}

std::vector<RemoteMachines::Listed> RemoteMachines::list() const {
  std::vector<Listed> all;
  for (const auto& [name, clone] : clones_) {
    if (clone.state != State::kRunning) continue;
    all.push_back({name, clone.wanted.host, clone.wanted.id, clone.wanted.ticket});
  }
  return all;
}

}  // namespace stdchk::fork::vm
