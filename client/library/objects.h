#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/api/filesystem.h"
#include "client/api/stdchk.h"
#include "core/base/mutex.h"

/// A stdchk_pool is a C program's connection to a pool.
///
/// Threads: any.
struct stdchk_pool {
  std::unique_ptr<stdchk::client::Filesystem> filesystem;
};

/// A stdchk_file is a C program's open file, with the position of its sequential calls.
///
/// Threads: any.
struct stdchk_file {
  std::unique_ptr<stdchk::client::File> file;
  bool append = false;
  stdchk::Mutex mutex;
  std::uint64_t position STDCHK_GUARDED_BY(mutex) = 0;
  /// Reserved bytes, from `position`; 0: none.
  std::size_t reserved STDCHK_GUARDED_BY(mutex) = 0;
};

/// A stdchk_dir is the list of a folder's entries as it was when the folder was opened.
///
/// Threads: one at a time.
struct stdchk_dir {
  std::vector<stdchk::msg::DirectoryEntry> entries;
  std::size_t next = 0;
  stdchk_entry shown{};  ///< the result of the last stdchk_readdir()
};

namespace stdchk::client::library {

/// Fills in the C structure for these attributes.
void show(const Attributes& attributes, struct stdchk_attributes& out);

}  // namespace stdchk::client::library
