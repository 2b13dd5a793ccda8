#include "container/layers/archive.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "core/files/own_folder.h"

namespace stdchk::container {
namespace {

namespace fs = std::filesystem;

/// Blocks of 512 bytes in a record of 1 MiB: the size of tar's writes.
constexpr const char* kBlocks = "2048";

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
                        [](const auto& name) { return name.starts_with("pages-"); });
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

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t sum = 0;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) sum += entry.file_size(ignored);
  }
  return sum;
}

}  // namespace stdchk::container
