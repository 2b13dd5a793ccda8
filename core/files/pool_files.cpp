#include "core/files/pool_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
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

/// Reason to distrust a file; empty: the file is trustworthy.
std::string distrust(const std::string& path, const struct stat& facts) {
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fmt::format(
        "the secret file {} is open to others (mode {:04o}): its readers can change the pool. "
        "Chmod 600 it, or start the pool anew if another user may have read it",
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

/// Random bytes repeat themselves so often less than once in 10^9 files.
bool looks_typed(ByteSpan bytes) {
  constexpr std::ptrdiff_t kDistinctMin = 8;
  std::array<bool, 256> seen{};
  for (const std::byte byte : bytes) seen[std::to_integer<std::size_t>(byte)] = true;
  return std::ranges::count(seen, true) < kDistinctMin;
}

}  // namespace

tl::expected<std::string, std::string> read_private_file(const std::string& path,
                                                         std::size_t bytes_max) {
  const auto unreadable = [&] {
    return tl::unexpected(fmt::format(
        "the secret file \"{}\" cannot be read ({}). Name the file by --secret-file or "
        "STDCHK_SECRET_FILE (of --encrypt: --key-file or STDCHK_KEY_FILE). `stdchk up` makes it in "
        "the state directory",
        path, std::strerror(errno)));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return unreadable();
  struct stat facts {};
  std::string text;
  const bool good = ::fstat(fd, &facts) == 0 && read_text(fd, bytes_max + 1, text);
  if (!good) {
    auto why = unreadable();
    ::close(fd);
    return why;
  }
  ::close(fd);
  if (std::string why = distrust(path, facts); !why.empty()) return tl::unexpected(std::move(why));
  return text;
}

tl::expected<Secret, std::string> read_secret_file(const std::string& path) {
  auto text = read_private_file(path, kDigits + 1);
  if (!text) return tl::unexpected(std::move(text.error()));
  return parse_secret(path, *text);
}

tl::expected<Secret, std::string> parse_secret(const std::string& path, std::string_view text) {
  constexpr const char* kHow =
      "`stdchk up` makes one that does, and docs/guide/start.md has a command for it";
  if (text.size() == kDigits + 1 && text.back() == '\n') text.remove_suffix(1);
  Secret secret;
  const MutableByteSpan bytes = MutableByteSpan(secret.bytes).first(kDigits / 2);
  if (!parse_hex(text, bytes)) {
    return tl::unexpected(fmt::format("the secret file {} does not hold {} hexadecimal digits; {}",
                                      path, kDigits, kHow));
  }
  if (looks_typed(bytes)) {
    return tl::unexpected(fmt::format(
        "the secret file {} does not hold random digits, so others could guess them; {}", path,
        kHow));
  }
  return secret;
}

bool parse_hex(std::string_view digits, MutableByteSpan bytes) {
  if (digits.size() != 2 * bytes.size()) return false;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char* const at = digits.data() + 2 * i;
    std::uint8_t value = 0;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) return false;
    bytes[i] = static_cast<std::byte>(value);
  }
  return true;
}

std::string hex_text(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
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
