#pragma once

#include <cstdint>

namespace stdchk::mount {

/// A ReadMode says how read-only opens use the kernel's page cache.
enum class ReadMode : std::uint8_t {
  kAuto,    ///< images with large reads go around it, if the kernel maps such files too
  kCached,  ///< all opens go through it
  kDirect,  ///< all opens go around it; shared mappings may fail
};

struct BridgeOptions {
  bool commit_unseen_writers = true;  ///< when a FLUSH comes from a process that cannot be seen
  bool writeback = true;              ///< let the kernel collect small cached writes
  ReadMode read_mode = ReadMode::kAuto;
};

}  // namespace stdchk::mount
