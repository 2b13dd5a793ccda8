#include "core/pool_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace stdchk {

namespace {

constexpr std::size_t kDigits = 32;

/// Until the end of the file, or `bytes_max`. False: see errno.
bool read_text(int fd, std::size_t bytes_max, std::string& text) {
  text.resize(bytes_max);
  std::size_t length = 0;
  ssize_t got = 1;
  while (got > 0 && length < bytes_max) {
    got = ::read(fd, text.data() + length, bytes_max - length);
    if (got < 0 && errno == EINTR)
      got = 1;
    else if (got > 0)
      length += static_cast<std::size_t>(got);
  }
  text.resize(length);
  return got >= 0;
}

/// Why a file must not be trusted; empty: it may be.
std::string distrust(const std::string& path, const struct stat& facts) {
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fmt::format(
        "the secret file {} is open to others (mode {:04o}), and whoever reads it can read and "
        "change the pool; chmod 600 it, or start the pool anew when somebody may have read it",
        path, facts.st_mode & 07777U);
  }
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0 && ::geteuid() != 0) {
    return fmt::format(
        "the secret file {} belongs to another user (uid {}), who could change it; use one of your "
        "own",
        path, facts.st_uid);
  }
  return {};
}

bool parse_secret(std::string_view text, msg::Secret& secret) {
  if (text.size() == kDigits + 1 && text.back() == '\n') text.remove_suffix(1);
  if (text.size() != kDigits) return false;
  const char* const end = text.data() + kDigits;
  const char* const middle = text.data() + kDigits / 2;
  return std::from_chars(text.data(), middle, secret.high, 16).ptr == middle &&
         std::from_chars(middle, end, secret.low, 16).ptr == end;
}

}  // namespace

tl::expected<msg::Secret, std::string> read_secret_file(const std::string& path) {
  const auto unreadable = [&] {
    return tl::unexpected(fmt::format(
        "the secret file \"{}\" cannot be read ({}); --secret-file and STDCHK_SECRET_FILE name "
        "it (--key-file and STDCHK_KEY_FILE that of --encrypt), and `stdchk up` leaves it in the "
        "pool's state directory",
        path, std::strerror(errno)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return unreadable();
  struct stat facts {};
  std::string text;
  const bool good = ::fstat(fd, &facts) == 0 && read_text(fd, kDigits + 2, text);
  if (!good) {
    auto why = unreadable();
    ::close(fd);
    return why;
  }
  ::close(fd);
  if (std::string why = distrust(path, facts); !why.empty()) return tl::unexpected(std::move(why));
  msg::Secret secret;
  if (parse_secret(text, secret)) return secret;
  return tl::unexpected(
      fmt::format("the secret file {} does not hold {} hexadecimal digits; `stdchk up` makes one "
                  "that does, and docs/operating.md has a command for it",
                  path, kDigits));
}

Secret to_key(const msg::Secret& secret) {
  Secret key;
  for (std::size_t i = 0; i < 8; ++i) {
    key.bytes[i] = static_cast<std::byte>(secret.high >> (56 - 8 * i));
    key.bytes[8 + i] = static_cast<std::byte>(secret.low >> (56 - 8 * i));
  }
  return key;
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
