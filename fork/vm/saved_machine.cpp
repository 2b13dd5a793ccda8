#include "fork/vm/saved_machine.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/json_fields.h"
#include "core/base/whole_io.h"
#include "core/files/pool_files.h"
#include "fork/vm/overlay.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
/// A run of zeros of this length, at a multiple of it, becomes a hole of the image.
constexpr std::size_t kZerosBytes = std::size_t{256} << 10;
constexpr int kFormat = 1;
constexpr std::size_t kSettingsBytesMax = std::size_t{1} << 20;

tl::unexpected<Problem> failed(const std::string& path) {
  return problem(fmt::format("{}: {}", path, std::strerror(errno)));
}

tl::unexpected<Problem> no_image(const std::string& folder) {
  return problem(fmt::format("{} has no image of a machine of this version.", folder));
}

/// machine.json says what to run.
tl::unexpected<Problem> distrusted(const std::string& folder) {
  return problem(fmt::format(
      "{} or its machine.json can be changed by others, and it says what to run; copy the image "
      "to a folder of your own.",
      folder));
}

bool are_zeros(const char* bytes, std::size_t count) {
  return bytes[0] == 0 && std::memcmp(bytes, bytes + 1, count - 1) == 0;
}

/// Writes a piece of a file at `at`, and leaves parts out that are zeros. False: errno says why.
bool write_piece(int to, const std::vector<char>& piece, std::size_t bytes, off_t at) {
  const auto write_part = [&](std::size_t from, std::size_t end) {
    return from == end ||
           ::pwrite(to, piece.data() + from, end - from, at + static_cast<off_t>(from)) ==
               static_cast<ssize_t>(end - from);
  };
  std::size_t from = 0;
  for (std::size_t part = 0; part < bytes; part += kZerosBytes) {
    const std::size_t end = std::min(part + kZerosBytes, bytes);
    if (!are_zeros(piece.data() + part, end - part)) continue;
    if (!write_part(from, part)) return false;
    from = end;
  }
  return write_part(from, bytes);
}

/// Whether only this user and root can change the file or folder.
bool is_trusted(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && (facts.st_uid == ::geteuid() || facts.st_uid == 0) &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

}  // namespace

std::string SavedMachine::path(const std::string& name) const {
  return fmt::format("/proc/{}/fd/{}/{}", ::getpid(), folder.get(), name);
}

std::string SavedMachine::disk(std::size_t number) const {
  return path(fmt::format("disk-{}.qcow2", number));
}

Outcome<SavedMachine> SavedMachine::read(const std::string& folder) {
  Descriptor there(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Descriptor file(!there ? -1
                               : ::openat(there.get(), "machine.json",
                                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) return no_image(folder);
  if (!is_trusted(there.get()) || !is_trusted(file.get())) return distrusted(folder);
  std::string text;
  if (!read_text(file.get(), kSettingsBytesMax, text)) return failed(folder);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    return no_image(folder);
  }
  SavedMachine machine{.folder = std::move(there)};
  const auto parsed = read_json([&] {
    machine.words = json.at("words").get<std::vector<std::string>>();
    machine.memory_bytes = json.at("memory_bytes").get<std::uint64_t>();
    machine.disks = json.at("disks").get<std::size_t>();
    machine.has_network = json.value("network", false);
    return true;
  });
  if (!parsed) {
    return problem(fmt::format("{}/machine.json is damaged: {}", folder, parsed.error().text));
  }
  return machine;
}

Outcome<void> copy_to(int from, const std::string& path) {
  const Descriptor to(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!to) return failed(path);
  struct stat s {};
  if (::fstat(from, &s) != 0) return failed(path);
  std::vector<char> piece(kPieceBytes);
  for (off_t at = 0; at < s.st_size;) {
    const off_t data = ::lseek(from, at, SEEK_DATA);
    if (data < 0) break;  // nothing but a hole follows
    const off_t hole = ::lseek(from, data, SEEK_HOLE);
    for (at = data; at < hole;) {
      const auto bytes =
          static_cast<std::size_t>(std::min<off_t>(hole - at, static_cast<off_t>(kPieceBytes)));
      const ssize_t n = ::pread(from, piece.data(), bytes, at);
      if (n <= 0 || !write_piece(to.get(), piece, static_cast<std::size_t>(n), at))
        return failed(path);
      at += n;
    }
  }
  if (::ftruncate(to.get(), s.st_size) != 0) return failed(path);
  if (::fsync(to.get()) != 0) return failed(path);
  return {};
}

Outcome<void> fill_from(const std::string& path, int to) {
  const Descriptor from(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!from) return failed(path);
  std::vector<char> piece(kPieceBytes);
  const std::vector<char> zeros(kPieceBytes);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(from.get(), piece.data(), piece.size(), at);
    if (n < 0) return failed(path);
    if (n == 0) return {};
    const auto bytes = static_cast<std::size_t>(n);
    const bool is_zero = std::memcmp(piece.data(), zeros.data(), bytes) == 0;
    if (!is_zero && ::pwrite(to, piece.data(), bytes, at) != n) return failed(path);
    at += n;
  }
}

Outcome<void> copy_disk(const std::string& from, const std::string& path) {
  auto copied = qemu_img({"convert", "-q", "--force-share", "-O", "qcow2", from, path});
  if (!copied) return problem(copied.error());
  return {};
}

Outcome<void> finish(const SavedMachine& machine) {
  const nlohmann::json json{{"format", kFormat},
                            {"words", machine.words},
                            {"memory_bytes", machine.memory_bytes},
                            {"disks", machine.disks},
                            {"network", machine.has_network}};
  const std::string path = machine.settings(), text = json.dump() + "\n";
  const Descriptor to(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!to || !write_all(to.get(), text) || ::fsync(to.get()) != 0) return failed(path);
  return {};
}

}  // namespace stdchk::fork::vm
