#pragma once

#include <sys/stat.h>

#include "core/values/types.h"

namespace stdchk {

/// Returns the type of a file as stat(2) has it in st_mode.
constexpr mode_t type_bits(FileType type) {
  switch (type) {
    case FileType::kDirectory:
      return S_IFDIR;
    case FileType::kSymlink:
      return S_IFLNK;
    case FileType::kFifo:
      return S_IFIFO;
    case FileType::kSocket:
      return S_IFSOCK;
    case FileType::kCharacterDevice:
      return S_IFCHR;
    case FileType::kBlockDevice:
      return S_IFBLK;
    case FileType::kRegular:
      break;
  }
  return S_IFREG;
}

}  // namespace stdchk
