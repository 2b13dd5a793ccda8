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
#include <vector>

#include "core/base/whole_io.h"
#include "core/crypto/secret.h"
#include "core/files/durable.h"

namespace stdchk {

namespace {

constexpr std::size_t kDigits = 32;

/// Reason to distrust a file; empty: the file is trustworthy.
std::string distrust(const std::string& path, const struct stat& facts) {
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fmt::format(
        "the secret file {} has mode {:04o}, so other users may read it, and then read and change "
        "the pool. Use chmod 600. If somebody may have read the file, start the pool anew",
        path, facts.st_mode & 07777U);
  }
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0 && ::geteuid() != 0) {
    return fmt::format(
        "the secret file {} belongs to another user (uid {}), who could change it; use a file that "
        "you own",
        path, facts.st_uid);
  }
  return {};
}

/// Returns true when a person typed the secret: 16 bytes with fewer than 8 different values. Fewer
/// than one in 10^9 random secrets looks so.
bool looks_typed(ByteSpan bytes) {
  constexpr std::ptrdiff_t kDistinctMin = 8;
  std::array<bool, 256> seen{};
  for (const std::byte byte : bytes) seen[std::to_integer<std::size_t>(byte)] = true;
  return std::ranges::count(seen, true) < kDistinctMin;
}

}  // namespace

Outcome<std::string> read_private_file(const std::string& path, std::size_t bytes_max) {
  const auto unreadable = [&] {
    return problem(fmt::format(
        "the secret file \"{}\" cannot be read ({}). `stdchk up` leaves it in the pool's state "
        "directory; --secret-file or STDCHK_SECRET_FILE names it. For the key of --encrypt, these "
        "are --key-file and STDCHK_KEY_FILE",
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
  if (std::string why = distrust(path, facts); !why.empty()) return problem(std::move(why));
  return text;
}

Outcome<Secret> read_secret_file(const std::string& path) {
  auto text = read_private_file(path, kDigits + 1);
  if (!text) return problem(std::move(text.error()));
  return parse_secret(path, *text);
}

Outcome<Secret> parse_secret(const std::string& path, std::string_view text) {
  constexpr const char* kHow =
      "`stdchk up` makes a good secret, and docs/guide/start.md has a command for it";
  if (text.size() == kDigits + 1 && text.back() == '\n') text.remove_suffix(1);
  Secret secret;
  const MutableByteSpan bytes = MutableByteSpan(secret.bytes).first(kDigits / 2);
  if (!parse_hex(text, bytes)) {
    return problem(fmt::format("the secret file {} does not hold {} hexadecimal digits; {}", path,
                               kDigits, kHow));
  }
  if (looks_typed(bytes)) {
    return problem(
        fmt::format("the secret file {} does not hold random digits, so others could guess it; {}",
                    path, kHow));
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

std::string random_hex(std::size_t bytes) {
  std::vector<std::byte> random(bytes);
  fill_random(random);
  return hex_text(random);
}

Result<Descriptor> make_file_anew(const std::string& path, mode_t mode) {
  ::unlink(path.c_str());
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file) return fail_errno("making a file anew");
  return file;
}

Status write_file_at_once(const std::string& path, std::string_view text, const NewFile& how) {
  constexpr const char* kWhere = "writing a file at once";
  // Other users can guess this name.
  const std::string temporary = fmt::format("{}.{}", path, ::getpid());
  auto file = make_file_anew(temporary, how.mode);
  if (!file) return tl::unexpected(file.error());
  const timespec times[2] = {{0, UTIME_OMIT}, how.mtime.value_or(timespec{0, UTIME_OMIT})};
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  // close() is last: NFS may report missing room only there.
  if (write_all(file->get(), text) && ::futimens(file->get(), times) == 0 &&
      (!how.durable || ::fsync(file->get()) == 0) && ::close(file->release()) == 0 &&
      ::rename(temporary.c_str(), path.c_str()) == 0) {
    return how.durable ? sync_path(folder) : Status();
  }
  const auto failed = fail_errno(kWhere);
  ::unlink(temporary.c_str());
  return failed;
}

Result<std::string> read_own_file(const std::string& path, std::size_t bytes_max) {
  constexpr const char* kWhere = "reading an own file";
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return fail_errno(kWhere);
  const bool is_own = facts.st_uid == ::geteuid() || facts.st_uid == 0;
  if (!S_ISREG(facts.st_mode) || !is_own) return fail(Code::kSystem, kWhere, EPERM);
  std::string text;
  if (!read_text(file.get(), bytes_max + 1, text)) return fail_errno(kWhere);
  if (text.size() > bytes_max) return fail(Code::kTooLarge, kWhere);
  return text;
}

}  // namespace stdchk
