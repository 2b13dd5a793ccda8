#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

/// Small files by which process 1 and the node talk.
namespace stdchk::container {

inline constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;

/// Returns the whole file. Returns an empty text for an absent file, a file of more than
/// `bytes_max` bytes, and anything but a regular file. Never waits: a program in a container may
/// have made a FIFO of that name.
inline std::string read_text(const std::string& path, std::size_t bytes_max = kTextBytesMax) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return text;
  struct stat facts {};
  const bool good = ::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
  char buffer[4096];
  ssize_t n = 0;
  while (good && text.size() <= bytes_max && (n = ::read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  if (text.size() > bytes_max) text.clear();
  return text;
}

/// A reader finds the old text or the new one, whole. The mode is 0644.
inline bool write_text(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return false;
  const bool whole = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return whole && ::rename(fresh.c_str(), path.c_str()) == 0;
}

inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

}  // namespace stdchk::container
