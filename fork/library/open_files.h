#pragma once

#include <netinet/in.h>
#include <sys/types.h>

#include <climits>
#include <cstdint>

namespace stdchk::fork {

/// An OpenFile describes an open descriptor, so that a clone can open its own: fork(2) shares the
/// parent's.
struct OpenFile {
  int fd = -1;
  int flags = 0;       ///< of fcntl(2) F_GETFL
  int descriptor = 0;  ///< of F_GETFD
  bool is_socket = false;
  bool listens = false;
  int domain = 0;
  int type = 0;
  int protocol = 0;
  off_t position = 0;
  socklen_t address_bytes = 0;
  sockaddr_in6 address{};
  char path[PATH_MAX] = {};
};

/// An OpenFiles remembers the files and Internet sockets that a process has open. A clone opens
/// them anew, in its own view of the file system and in its own network.
///
/// Files: the same name, flags and position. Listening and bound sockets: the same port, on all
/// addresses. Connected sockets become unconnected. Standard input, output and error stay shared,
/// and so do pipes, Unix sockets, and files that have no name any more.
///
/// Threads: one. Limits: kCountMax descriptors; the others stay shared.
class OpenFiles {
 public:
  static constexpr std::uint32_t kCountMax = 1024;

  void remember();
  /// Opens each file anew at its number. Returns 0, or an errno; then `failed` names the file.
  int open_anew(char* failed, std::uint32_t failed_bytes) const;

 private:
  std::uint32_t count_ = 0;
  char folder_[PATH_MAX] = {};
  OpenFile files_[kCountMax];
};

}  // namespace stdchk::fork
