#include "core/pool_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

namespace stdchk {

Result<msg::Secret> read_secret_file(const std::string& path) {
  constexpr const char* kWhere = "secret file";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(kWhere);
  char text[34];
  ssize_t length = ::read(fd, text, sizeof(text));
  const int error = errno;
  ::close(fd);
  if (length < 0) return fail(Code::kSystem, kWhere, error);
  if (length == 33 && text[32] == '\n') length = 32;
  if (length != 32) return fail(Code::kConfig, kWhere);
  msg::Secret secret;
  const auto high = std::from_chars(text, text + 16, secret.high, 16);
  const auto low = std::from_chars(text + 16, text + 32, secret.low, 16);
  if (high.ptr != text + 16 || low.ptr != text + 32) return fail(Code::kConfig, kWhere);
  return secret;
}

Status write_file_at_once(const std::string& path, std::string_view text) {
  constexpr const char* kWhere = "ready file";
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return fail_errno(kWhere);
  const ssize_t written = ::write(fd, text.data(), text.size());
  int error = written < 0 ? errno : ENOSPC;
  const bool whole = written == static_cast<ssize_t>(text.size());
  if (::close(fd) == 0 && whole && ::rename(temporary.c_str(), path.c_str()) == 0) return {};
  if (whole) error = errno;
  ::unlink(temporary.c_str());
  return fail(Code::kSystem, kWhere, error);
}

}  // namespace stdchk
