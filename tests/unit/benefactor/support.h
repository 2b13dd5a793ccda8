#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "benefactor/memory/memory_scopes.h"
#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "core/values/types.h"

namespace stdchk::benefactor {

/// Bytes that differ for each seed.
std::vector<std::byte> content_of(std::size_t length, unsigned seed);

/// A chunk as a client writes it into an arena.
struct PlacedChunk {
  std::uint64_t extent_offset = 0;
  std::uint32_t length = 0;
  std::uint32_t crc = 0;
  ChunkName name;
};
PlacedChunk place_chunk(MutableByteSpan arena, std::uint64_t offset, ByteSpan content);

/// A temporary folder, removed with its content.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& content);
bool path_exists(const std::string& path);

/// Files that the kernel would show on another machine.
struct OtherMachine {
  explicit OtherMachine(const std::string& meminfo, const std::string& cgroups = "");
  /// Writes a file of the control group at `path`.
  void group(const std::string& path, const std::string& name, const std::string& content) const;
  TemporaryFolder folder;
  MachineFiles files;
};

}  // namespace stdchk::benefactor
