#include "fork/pager/regions.h"

#include <algorithm>

namespace stdchk::pager {

std::optional<std::uint64_t> Regions::offset_of(std::uint64_t address) const {
  for (std::uint32_t i = 0; i < count; ++i) {
    const Region& region = all[i];
    if (address >= region.address && address - region.address < region.length) {
      return region.offset + (address - region.address);
    }
  }
  return std::nullopt;
}

/// Adds a region, or lengthens the region that it continues.
bool Regions::add(const Region& region) {
  if (region.length == 0) return true;
  Region joined = region;
  for (std::uint32_t i = 0; i < count;) {
    const Region& other = all[i];
    const bool is_before =
        other.end() == joined.address && other.offset + other.length == joined.offset;
    const bool is_behind =
        joined.end() == other.address && joined.offset + joined.length == other.offset;
    if (!is_before && !is_behind) {
      ++i;
      continue;
    }
    joined = {std::min(other.address, joined.address), other.length + joined.length,
              std::min(other.offset, joined.offset)};
    all[i] = all[--count];
    i = 0;  // the longer region may continue another one
  }
  if (count == kRegionsMax) return false;
  all[count++] = joined;
  return true;
}

/// Takes a range of addresses out.
bool Regions::remove(std::uint64_t address, std::uint64_t length) {
  const Regions before = *this;
  const std::uint64_t end = address + length;
  bool complete = true;
  count = 0;
  for (std::uint32_t i = 0; i < before.count; ++i) {
    const Region& region = before.all[i];
    if (region.end() <= address || end <= region.address) {
      complete = add(region) && complete;
      continue;
    }
    if (region.address < address) {
      complete = add({region.address, address - region.address, region.offset}) && complete;
    }
    if (end < region.end()) {
      complete = add({end, region.end() - end, region.offset + (end - region.address)}) && complete;
    }
  }
  return complete;
}

bool Regions::move(std::uint64_t from, std::uint64_t to, std::uint64_t length) {
  const Regions before = *this;
  bool complete = remove(from, length);
  complete = remove(to, length) && complete;
  for (std::uint32_t i = 0; i < before.count; ++i) {
    const Region& region = before.all[i];
    const std::uint64_t begin = std::max(region.address, from);
    const std::uint64_t end = std::min(region.end(), from + length);
    if (begin >= end) continue;
    complete =
        add({begin - from + to, end - begin, region.offset + (begin - region.address)}) && complete;
  }
  return complete;
}

}  // namespace stdchk::pager
