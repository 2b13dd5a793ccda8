#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace stdchk::shims {

// Memory that the program protects: where it is, and its length.
struct Region {
  void* first = nullptr;
  std::size_t bytes = 0;
};

// The position of a region's bytes in a file.
struct RegionPlace {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// The file of a rank: "STDCHKV1", the number of regions, then id and length of each region, then
// their bytes. All numbers have 64 bits in the order of the host. Functions return a sentence on
// failure, an empty one on success.
[[nodiscard]] std::string write_regions(const std::string& path,
                                        const std::map<int, Region>& regions);
[[nodiscard]] std::string read_places(const std::string& path, std::map<int, RegionPlace>* places);
// Reads the regions with these ids into the program's memory.
[[nodiscard]] std::string read_regions(const std::string& path, const std::vector<int>& ids,
                                       const std::map<int, Region>& regions);

}  // namespace stdchk::shims
