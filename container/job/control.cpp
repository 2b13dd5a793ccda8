#include "container/job/control.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace stdchk::container {
namespace {

constexpr std::size_t kRequestBytesMax = 4096;
constexpr std::size_t kVisitorsMax = 64;
constexpr std::uint64_t kListening = 0;

bool address_of(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  return true;
}

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

}  // namespace

Outcome<std::unique_ptr<Control>> Control::listen(const std::string& path, Handler handler) {
  sockaddr_un address{};
  if (!address_of(path, address)) return problem(path + " is too long for a socket's name");
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0600) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    return problem(errno_text(path));
  }
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListening}};
  if (!epoll || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    return problem(errno_text(path));
  }
  return std::unique_ptr<Control>(
      new Control(path, std::move(socket), std::move(epoll), std::move(handler)));
}

Control::Control(std::string path, Descriptor socket, Descriptor epoll, Handler handler)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      epoll_(std::move(epoll)),
      handler_(std::move(handler)) {}

Control::~Control() { ::unlink(path_.c_str()); }

bool Control::poll() {
  std::array<epoll_event, 16> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
    number == kListening ? accept() : read(number);
  }
  return count > 0;
}

void Control::accept() {
  Descriptor socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket || !is_same_user(socket.get()) || visitors_.size() == kVisitorsMax) return;
  const std::uint64_t number = ++made_;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) return;
  visitors_.push_back({number, std::move(socket), {}});
}

void Control::read(std::uint64_t number) {
  const auto visitor = std::ranges::find(visitors_, number, &Visitor::number);
  if (visitor == visitors_.end()) return;
  std::array<char, kRequestBytesMax> buffer{};
  const ssize_t n = ::read(visitor->socket.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) visitor->request.append(buffer.data(), static_cast<std::size_t>(n));
  const std::size_t end = visitor->request.find('\n');
  if (n <= 0 || visitor->request.size() > kRequestBytesMax || visitor->asked) {
    visitors_.erase(visitor);
    return;
  }
  if (end == std::string::npos) return;
  visitor->asked = true;
  handler_(visitor->request.substr(0, end),
           [this, number](const std::string& line) { answer(number, line); });
}

void Control::answer(std::uint64_t number, const std::string& line) {
  const auto visitor = std::ranges::find(visitors_, number, &Visitor::number);
  if (visitor == visitors_.end()) return;
  const std::string text = line + "\n";
  // An answer is shorter than a socket's buffer. A visitor that has gone is no error.
  (void)!::send(visitor->socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  visitors_.erase(visitor);
}

Outcome<std::string> ask_control(const std::string& path, const std::string& request,
                                 Duration deadline) {
  sockaddr_un address{};
  if (!address_of(path, address)) return problem(path + " is too long for a socket's name");
  const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return problem(errno_text("the job's coordinator does not listen at " + path));
  }
  const std::string line = request + "\n";
  if (::send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) {
    return problem(errno_text(path));
  }
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::string answer;
  while (answer.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wanted{socket.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&wanted, 1, static_cast<int>(left.count())) == 0) {
      return problem("the job's coordinator does not answer in time");
    }
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(socket.get(), buffer.data(), buffer.size());
    if (n == 0) return problem("the job's coordinator has ended");
    if (n > 0) answer.append(buffer.data(), static_cast<std::size_t>(n));
  }
  answer.pop_back();
  return answer;
}

}  // namespace stdchk::container
