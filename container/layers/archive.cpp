#include "container/layers/archive.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/descriptor.h"
#include "core/files/own_folder.h"

namespace stdchk::container {
namespace {

namespace fs = std::filesystem;

/// Blocks of 512 bytes in a record of 1 MiB: the size of tar's writes.
constexpr const char* kBlocks = "2048";

/// The names of files with memory begin so.
constexpr std::string_view kMemory = "pages-";
constexpr std::uint64_t kTarBlock = 512;

/// The header of a file in a tar archive, as GNU tar writes it (its manual, "Basic Tar Format").
struct TarHeader {
  char name[100];
  char mode[8], user[8], group[8];
  char size[12];
  char mtime[12], checksum[8];
  char type;
  char rest[355];
};
static_assert(sizeof(TarHeader) == kTarBlock);

/// An octal number, or with the first bit set a number of 8 bytes, the highest first.
std::optional<std::uint64_t> number_in(const char (&field)[12]) {
  std::uint64_t number = 0;
  if ((field[0] & '\x80') != 0) {
    for (std::size_t i = 4; i < sizeof field; ++i) {
      number = number << 8 | static_cast<unsigned char>(field[i]);
    }
    return number;
  }
  const char* const end = std::find(field, field + sizeof field, '\0');
  const auto read = std::from_chars(field, end, number, 8);
  if (read.ec != std::errc{} || read.ptr == field) return std::nullopt;
  return number;
}

Outcome<void> tar(std::vector<std::string> words, Duration deadline,
                  const std::atomic<bool>* cancelled = nullptr) {
  words.insert(words.begin(), {"tar", "--numeric-owner"});
  auto done =
      run_program({.words = std::move(words), .deadline = deadline, .cancelled = cancelled});
  if (!done) return problem(std::move(done.error()));
  return {};
}

/// Root makes processes from images, so no other user may change or replace their folder. The pool
/// may be absent on this host: then another user may have made a folder of that name.
Outcome<void> check_image_folder(const std::string& archive) {
  constexpr FolderRules kRules{.what = "the folder of the job's images", .is_private = false};
  const auto own = OwnFolder::open(fs::path(archive).parent_path(), kRules);
  if (!own) return problem(own.error());
  return {};
}

/// Memory first; then by name.
std::vector<std::string> names_in_order(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  std::stable_partition(names.begin(), names.end(),
                        [](const auto& name) { return name.starts_with(kMemory); });
  return names;
}

}  // namespace

Outcome<void> pack_changes(const std::string& upper, const std::string& archive,
                           Duration deadline) {
  return tar({"--create", "--xattrs", "--xattrs-include=*", "--acls", "--sparse", "--file", archive,
              "--directory", upper, "."},
             deadline);
}

Outcome<void> unpack_changes(const std::string& archive, const std::string& upper,
                             Duration deadline) {
  return tar({"--extract", "--xattrs", "--xattrs-include=*", "--acls", "--same-permissions",
              "--same-owner", "--file", archive, "--directory", upper},
             deadline);
}

Outcome<std::uint64_t> pack_image(const std::string& folder, const std::string& archive,
                                  Duration deadline, const std::atomic<bool>& cancelled) {
  if (auto good = check_image_folder(archive); !good) return problem(std::move(good.error()));
  std::vector<std::string> words{"--create", "--blocking-factor", kBlocks, "--file",
                                 archive,    "--directory",       folder};
  for (auto& name : names_in_order(folder)) words.push_back(std::move(name));
  if (auto done = tar(std::move(words), deadline, &cancelled); !done) {
    ::unlink(archive.c_str());
    return problem(std::move(done.error()));
  }
  std::error_code error;
  const auto bytes = fs::file_size(archive, error);
  if (error) return problem(archive + ": " + error.message());
  return bytes;
}

Outcome<void> unpack_image(const std::string& archive, const std::string& folder,
                           Duration deadline) {
  if (auto good = check_image_folder(archive); !good) return good;
  return tar({"--extract", "--blocking-factor", kBlocks, "--file", archive, "--directory", folder},
             deadline);
}

Outcome<void> unpack_without_memory(const std::string& archive, const std::string& folder,
                                    Duration deadline) {
  if (auto good = check_image_folder(archive); !good) return good;
  return tar({"--extract", "--seek", "--exclude", "pages-*.img", "--blocking-factor", kBlocks,
              "--file", archive, "--directory", folder},
             deadline);
}

Outcome<std::vector<ArchivedFile>> memory_in(const std::string& archive) {
  if (auto good = check_image_folder(archive); !good) return problem(std::move(good.error()));
  const Descriptor file(::open(archive.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0) return problem(errno_text(archive));
  const auto end = static_cast<std::uint64_t>(facts.st_size);
  std::vector<ArchivedFile> found;
  for (std::uint64_t at = 0; end - at >= kTarBlock;) {
    TarHeader header{};
    if (::pread(file.get(), &header, sizeof header, static_cast<off_t>(at)) != sizeof header) {
      return problem(errno_text(archive));
    }
    const std::string name(header.name, ::strnlen(header.name, sizeof header.name));
    const auto bytes = number_in(header.size);
    if (!name.starts_with(kMemory)) return found;
    const bool is_file = header.type == '0' || header.type == '\0';
    if (!is_file || !bytes || *bytes > end - at - kTarBlock ||
        name.find('/') != std::string::npos) {
      return problem(fmt::format("{}: the header of {} cannot be read", archive, name));
    }
    found.push_back({name, at + kTarBlock, *bytes});
    at += kTarBlock + (*bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (at > end) break;
  }
  return found;
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) sum += entry.file_size(ignored);
  }
  return sum;
}

}  // namespace stdchk::container
