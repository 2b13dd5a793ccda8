#include "tests/unit/benefactor/support.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/assert.h"
#include "core/base/clock.h"

namespace stdchk::benefactor {

std::vector<std::byte> content_of(std::size_t length, unsigned seed) {
  Prng random(seed);
  std::vector<std::byte> bytes(length);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xff);
  return bytes;
}

PlacedChunk place_chunk(MutableByteSpan arena, std::uint64_t offset, ByteSpan content) {
  PlacedChunk placed{offset, static_cast<std::uint32_t>(content.size()), crc32c(0, content),
                     name_chunk(content)};
  STDCHK_ASSERT(offset + extent_bytes(placed.length) <= arena.size());
  const ExtentHeader header{placed.name, placed.length, placed.crc, FileId{7}, 0};
  encode_extent_header(header, arena.data() + offset);
  std::memcpy(arena.data() + offset + limits::kExtentHeaderBytes, content.data(), content.size());
  return placed;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "stdchk-test-XXXXXX").string();
  STDCHK_ASSERT(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

bool path_exists(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

OtherMachine::OtherMachine(const std::string& meminfo, const std::string& cgroups)
    : files{folder / "proc", folder / "cgroup"} {
  std::filesystem::create_directories(files.proc + "/self");
  write_file(files.proc + "/meminfo", meminfo);
  write_file(files.proc + "/self/cgroup", cgroups);
}

void OtherMachine::group(const std::string& path, const std::string& name,
                         const std::string& content) const {
  std::filesystem::create_directories(files.cgroup + path);
  write_file(files.cgroup + path + "/" + name, content);
}

}  // namespace stdchk::benefactor
