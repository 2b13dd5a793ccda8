#pragma once

#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "tools/base/pool_record.h"
#include "tools/drained/undrained_file.h"

namespace stdchk::tools {

/// Asks the pool for everything that is committed and not drained.
Outcome<Undrained> find_undrained(client::Filesystem& filesystem);

/// A line for each entry, and one for the rest of a long list.
std::vector<std::string> undrained_lines(const Undrained& undrained);
/// Removes the sets that were drained completely after the file was written.
void leave_out_drained(Undrained& undrained, const std::string& drain);

/// The losses with a lost pool, as its file lists them, for people; empty: no known loss. Leaves
/// out files that `drain` holds whole, unless `drain` is empty.
std::string losses(const std::string& path, const std::string& drain);
/// Like losses(), and removes the file, so that the losses are reported once.
std::string take_losses(const std::string& path, const std::string& drain);

/// Reports the losses of a job's earlier run on standard error and in the file `report`.
void report_losses(const std::string& path, const std::string& drain, const std::string& report);

/// The files that keep_files() writes; an empty path: not this file.
struct KeptFiles {
  std::string undrained;  ///< see Undrained; with it, also the manifests of the drain directory
  std::string safe;       ///< see save_safe_set()
  bool confined = true;   ///< see confine()
};
/// Keeps the files up to date: once a second, and less often where that takes long. Ends when the
/// pool's record has gone, or at a signal. Returns the exit status.
int keep_files(const PoolRecord& pool, const KeptFiles& paths);

}  // namespace stdchk::tools
