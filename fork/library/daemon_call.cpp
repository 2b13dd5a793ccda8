#include "fork/library/daemon_call.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fork/pager/passing.h"

namespace stdchk::fork {
namespace {

constexpr int kAnswerSecondsMax = 60;
thread_local char error_text[local::kValueBytesMax + 1];

/// Another user may listen where STDCHK_FORKD says, and would get this process's clones.
bool is_trusted(int fd) {
  ucred server{};
  socklen_t bytes = sizeof(server);
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &bytes) == 0 &&
         (server.uid == 0 || server.uid == ::geteuid());
}

}  // namespace

void set_error(const char* text) { std::snprintf(error_text, sizeof(error_text), "%s", text); }
const char* last_error() { return error_text; }

const char* daemon_path() {
  const char* path = std::getenv(local::kSocketVariable);
  const bool is_good =
      path != nullptr && *path != '\0' && std::strlen(path) < sizeof(sockaddr_un::sun_path);
  return is_good ? path : local::kSocketDefault;
}

int connect_daemon() {
  const char* path = std::getenv(local::kSocketVariable);
  if (path == nullptr || *path == '\0') path = local::kSocketDefault;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof(address.sun_path)) {
    set_error("The path of stdchk-forkd's socket is longer than 107 bytes.");
    return -ENAMETOOLONG;
  }
  std::strcpy(address.sun_path, path);
  const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  int error = 0;
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    error = errno;
  } else if (!is_trusted(fd)) {
    error = EPERM;
  } else {
    return fd;
  }
  char text[256];
  std::snprintf(text, sizeof(text), "stdchk-forkd does not answer at %s: %s. Start it, or set %s.",
                path, std::strerror(error), local::kSocketVariable);
  set_error(text);
  if (fd >= 0) ::close(fd);
  return -error;
}

int send_record(int fd, const local::Record& record, int passed) {
  const std::size_t bytes = local::size_of(record);
  return passed < 0 ? -pager::send_message(fd, &record, bytes)
                    : -pager::send_message(fd, &record, bytes, {passed});
}

int receive_record(int fd, local::Record& record, int* passed) {
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&record, sizeof(record)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = passed != nullptr ? room : nullptr;
  message.msg_controllen = passed != nullptr ? sizeof(room) : 0;
  ssize_t n = 0;
  do {
    n = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return -errno;
  if (n == 0) return -EPIPE;
  if (!local::is_whole(record, static_cast<std::size_t>(n))) return -EPROTO;
  if (passed != nullptr) {
    *passed = -1;
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (head != nullptr && head->cmsg_type == SCM_RIGHTS)
      std::memcpy(passed, CMSG_DATA(head), sizeof(int));
  }
  return 0;
}

int call_daemon(local::Record& record) {
  const int fd = connect_daemon();
  if (fd < 0) return fd;
  const timeval longest{kAnswerSecondsMax, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
  int result = send_record(fd, record);
  if (result == 0) result = receive_record(fd, record);
  ::close(fd);
  if (result != 0) {
    set_error(result == -EPIPE ? "stdchk-forkd has ended." : std::strerror(-result));
    return result;
  }
  if (record.error == 0) return 0;
  char text[local::kValueBytesMax + 1];
  std::snprintf(text, sizeof(text), "%.*s", static_cast<int>(record.value_bytes), record.value);
  set_error(text);
  return -record.error;
}

}  // namespace stdchk::fork
