#include "fork/vm/monitor.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kAnswerBytesMax = std::size_t{16} << 20;
constexpr int kCheckIntervalMs = 5;

Time now() { return std::chrono::steady_clock::now(); }

int milliseconds_until(Time until) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

int connect_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

Outcome<Monitor> Monitor::connect(const std::string& path, int process, Duration longest) {
  const Time until = now() + longest;
  for (;;) {
    if (Descriptor socket(connect_unix(path)); socket) {
      Monitor monitor(std::move(socket));
      if (auto greeting = monitor.read_object(until); !greeting) return problem(greeting.error());
      if (auto ready = monitor.execute("qmp_capabilities", nullptr, longest); !ready) {
        return problem(ready.error());
      }
      return monitor;
    }
    pollfd ended{process, POLLIN, 0};
    if (::poll(&ended, 1, kCheckIntervalMs) > 0) return problem("QEMU has ended");
    if (now() > until) return problem(fmt::format("QEMU does not answer at {}", path));
  }
}

Outcome<nlohmann::json> Monitor::read_object(Time until) {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      auto object = nlohmann::json::parse(buffer_.substr(0, end), nullptr, false);
      buffer_.erase(0, end + 1);
      if (object.is_object()) return object;
      return problem("QEMU's monitor said no JSON");
    }
    pollfd readable{socket_.get(), POLLIN, 0};
    if (::poll(&readable, 1, milliseconds_until(until)) == 0) {
      return problem("QEMU's monitor does not answer in time");
    }
    char bytes[4096];
    const ssize_t n = ::recv(socket_.get(), bytes, sizeof(bytes), 0);
    if (n <= 0 || buffer_.size() > kAnswerBytesMax) return problem("QEMU has ended");
    buffer_.append(bytes, static_cast<std::size_t>(n));
  }
}

Outcome<nlohmann::json> Monitor::execute(const std::string& command,
                                         const nlohmann::json& arguments, Duration longest) {
  nlohmann::json request{{"execute", command}};
  if (!arguments.is_null()) request["arguments"] = arguments;
  const std::string text = request.dump() + "\n";
  if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(text.size())) {
    return problem("QEMU has ended");
  }
  const Time until = now() + longest;
  for (;;) {
    auto answer = read_object(until);
    if (!answer) return answer;
    if (answer->contains("return")) return (*answer)["return"];
    if (answer->contains("error")) {
      return problem(
          fmt::format("QEMU refused {}: {}", command, (*answer)["error"].value("desc", "")));
    }
  }
}

}  // namespace stdchk::fork::vm
