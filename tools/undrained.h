#pragma once

#include <string>
#include <vector>

#include "client/filesystem.h"
#include "tools/pool_record.h"
#include "tools/undrained_file.h"

namespace stdchk::tools {

/// Asks the pool for all that is committed and not drained.
Outcome<Undrained> find_undrained(client::Filesystem& filesystem);

/// A line for each entry, and one for the rest of very many.
std::vector<std::string> undrained_lines(const Undrained& undrained);
/// Takes out what was drained after the file was written: sets of which all came that was missing.
void leave_out_drained(Undrained& undrained, const std::string& drain);

/// What went with a pool that was lost, as its file says it, for people; empty: nothing that is
/// known. Without what `drain` has whole, when that is not empty.
std::string losses(const std::string& path, const std::string& drain);
/// The same, and removes the file: nobody else tells it.
std::string take_losses(const std::string& path, const std::string& drain);

/// Says on standard error, and in the file `report`, what an earlier run of a job has lost so.
void tell_losses(const std::string& path, const std::string& drain, const std::string& report);

/// Keeps the file as the pool is, and the manifests of its drain directory: once a second, and less
/// often in a pool where that takes long, until the pool's record has gone or a signal ends this.
/// Returns the exit status.
int keep_undrained(const PoolRecord& pool, const std::string& path);

}  // namespace stdchk::tools
