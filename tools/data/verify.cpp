#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "tools/base/exit_status.h"
#include "tools/base/share_out.h"
#include "tools/data/check_report.h"
#include "tools/data/commands.h"
#include "tools/drained/manifest.h"

namespace stdchk::tools {
namespace {

/// A file of a manifest, with the result of its check.
struct Checked {
  ManifestFile said;
  std::string fault;  ///< empty: as the manifest says
  std::uint64_t checked_bytes = 0;
  std::uint64_t unknown_bytes = 0;  ///< without a known checksum
};

void check_open_file(int fd, Checked& file, Namer& namer) {
  struct stat status {};
  const std::uint64_t size = file.said.size_bytes;
  if (::fstat(fd, &status) != 0 || static_cast<std::uint64_t>(status.st_size) != size) {
    file.fault = fmt::format("has {} bytes instead of {}", status.st_size, size);
    return;
  }
  for (const ManifestPiece& piece : file.said.pieces) {
    if (!matches_manifest(piece, read_range(fd, piece.offset, piece.length), namer)) {
      file.fault = fmt::format("is damaged in the {} bytes from {} on", piece.length, piece.offset);
      return;
    }
    file.checked_bytes += piece.length;
  }
  file.unknown_bytes = size - std::min(size, file.checked_bytes);
}

void check_file(const DrainFolder& folder, Checked& file, Namer& namer) {
  if (file.said.unlisted) return;
  if (file.said.damaged) {
    file.fault = "has an entry in the manifest that is damaged";
    return;
  }
  const auto opened = folder.open(file.said.below, Access::kRead);
  if (!opened) {
    file.fault = fault_of(opened.error());
    return;
  }
  check_open_file(opened->file.get(), file, namer);
}

}  // namespace

int run_verify(const VerifyOptions& options) {
  if (is_object_store(options.path)) return run_verify_objects(options);
  auto manifests = read_manifests(options.path);
  if (!manifests) return complain(manifests.error().text);
  if (std::ranges::all_of(*manifests, &ManifestFile::unlisted)) {
    return complain(fmt::format(
        "there is no {} in {} or below; the pool of a job, stdchk drain --wait and down --drain "
        "write them",
        kManifestName, options.path));
  }
  const auto folder = DrainDirectory(options.path).open();
  if (!folder) return complain(folder.error().text);
  std::vector<Checked> files(manifests->size());
  for (std::size_t i = 0; i < files.size(); ++i) files[i].said = std::move((*manifests)[i]);
  share_out(files, std::max(1U, std::thread::hardware_concurrency()), [&folder = *folder] {
    return [&folder, namer = Namer()](Checked& file) mutable { check_file(folder, file, namer); };
  });
  std::vector<FileCheck> checks;
  for (const Checked& file : files) {
    checks.push_back(
        {file.said.path, file.fault, file.said.unlisted, file.checked_bytes, file.unknown_bytes});
  }
  return report_checks(checks, {"is in no manifest", "holes and parts without", "in no manifest"},
                       options.json);
}

}  // namespace stdchk::tools
