#include "fork/vm/saved_machine.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/base/descriptor.h"
#include "fork/vm/overlay.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
constexpr int kFormat = 1;
constexpr std::size_t kSettingsBytesMax = std::size_t{1} << 20;

tl::unexpected<Problem> failed(const std::string& path) {
  return problem(fmt::format("{}: {}", path, std::strerror(errno)));
}

/// Whether only this user and root can change the file or folder.
bool is_trusted(int fd) {
  struct stat facts {};
  return ::fstat(fd, &facts) == 0 && (facts.st_uid == ::geteuid() || facts.st_uid == 0) &&
         (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Reads machine.json, which contains a command line. Refuses a file that other users can change.
Outcome<std::string> read_settings(const std::string& folder) {
  const Descriptor there(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Descriptor file(!there ? -1
                               : ::openat(there.get(), "machine.json",
                                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file) {
    return problem(fmt::format("{} has no image of a machine of this version.", folder));
  }
  if (!is_trusted(there.get()) || !is_trusted(file.get())) {
    return problem(fmt::format(
        "{} or its machine.json can be changed by others, and it says what to run; copy the image "
        "to a folder of your own.",
        folder));
  }
  std::string text(kSettingsBytesMax, '\0');
  const ssize_t n = ::read(file.get(), text.data(), text.size());
  if (n < 0) return failed(folder);
  text.resize(static_cast<std::size_t>(n));
  return text;
}

}  // namespace

Outcome<SavedMachine> SavedMachine::read(const std::string& folder) {
  const auto text = read_settings(folder);
  if (!text) return problem(text.error());
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    return problem(fmt::format("{} has no image of a machine of this version.", folder));
  }
  SavedMachine machine;
  machine.folder = folder;
  try {  // the library throws where a member has another type
    machine.words = json.at("words").get<std::vector<std::string>>();
    machine.memory_bytes = json.at("memory_bytes").get<std::uint64_t>();
    for (std::size_t i = 0; i < json.at("disks").get<std::size_t>(); i++) {
      machine.drives.push_back(fmt::format("{}/disk-{}.qcow2", folder, i));
    }
  } catch (const nlohmann::json::exception& error) {
    return problem(fmt::format("{}/machine.json is damaged: {}", folder, error.what()));
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
      if (n <= 0 || ::pwrite(to.get(), piece.data(), static_cast<std::size_t>(n), at) != n)
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
                            {"disks", machine.drives.size()}};
  const std::string path = machine.folder + "/machine.json", text = json.dump() + "\n";
  const Descriptor to(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!to || ::write(to.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(to.get()) != 0) {
    return failed(path);
  }
  return {};
}

}  // namespace stdchk::fork::vm
