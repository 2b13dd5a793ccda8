#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <initializer_list>

/// Messages over a unix socket that carry open files (unix(7), SCM_RIGHTS).
namespace stdchk::pager {

inline constexpr std::size_t kFilesMax = 4;

/// Sends one message, with the files. Returns 0 or an errno. Repeats after a signal. `flags` are
/// further flags of sendmsg(2).
inline int send_message(int socket, const void* bytes, std::size_t length,
                        std::initializer_list<int> files = {}, int flags = 0) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesMax * sizeof(int))> room{};
  iovec part{const_cast<void*>(bytes), length};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const std::size_t files_bytes = files.size() * sizeof(int);
  if (files.size() > kFilesMax) return E2BIG;
  if (files_bytes > 0) {
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(files_bytes);
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files_bytes);
    std::memcpy(CMSG_DATA(rights), files.begin(), files_bytes);
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | flags);
    if (sent == static_cast<ssize_t>(length)) return 0;
    if (sent >= 0) return EMSGSIZE;
    if (errno != EINTR) return errno;
  }
}

/// A Received is what receive_message() got. The caller owns the files and must close them.
struct Received {
  int error = 0;           ///< errno; ENODATA: the peer has closed; EPROTO: wrong length
  std::size_t length = 0;  ///< bytes
  std::array<int, kFilesMax> files{-1, -1, -1, -1};

  /// Hands the file over to the caller.
  int take(std::size_t index) {
    const int file = files[index];
    files[index] = -1;
    return file;
  }
  void close_all() {
    for (int& file : files) {
      if (file >= 0) ::close(file);
      file = -1;
    }
  }
};

/// Receives one message of at most `room` bytes. Files beyond kFilesMax are closed by the kernel,
/// and the message counts as malformed.
inline Received receive_message(int socket, void* bytes, std::size_t room, int flags = 0) {
  Received got;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFilesMax * sizeof(int))> control{};
  iovec part{bytes, room};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t length = -1;
  do {
    length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (length < 0 && errno == EINTR);
  if (length < 0) {
    got.error = errno;
    return got;
  }
  std::size_t count = 0;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t files = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < files && count < kFilesMax; ++i, ++count) {
      std::memcpy(&got.files[count], CMSG_DATA(each) + i * sizeof(int), sizeof(int));
    }
  }
  got.length = static_cast<std::size_t>(length);
  if (length == 0) got.error = ENODATA;
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) got.error = EPROTO;
  return got;
}

/// Receives a message that must be a T. `file`, unless nullptr, gets the file that must come with
/// it. Any other file is closed. Returns 0 or an errno.
template <class T>
int receive(int socket, T& message, int* file = nullptr) {
  Received got = receive_message(socket, &message, sizeof(message));
  int error = got.error;
  if (error == 0 && got.length != sizeof(message)) error = EPROTO;
  if (error == 0 && file != nullptr) {
    *file = got.take(0);
    if (*file < 0) error = EPROTO;
  }
  got.close_all();
  return error;
}

}  // namespace stdchk::pager
