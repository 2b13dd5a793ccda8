#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace stdchk::pager {

/// A Region is a part of a clone's address space and the part of the image that it shows.
struct Region {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;  ///< in the image
  std::uint64_t end() const { return address + length; }
  bool operator==(const Region&) const = default;
};

/// A Regions is where a clone's address space shows an image. Trivially copyable: it is a part of
/// the record that the holder keeps.
///
/// Threads: one at a time.
/// Limits: kRegionsMax parts that do not continue each other.
struct Regions {
  static constexpr std::size_t kRegionsMax = 16;
  std::uint32_t count = 0;
  std::array<Region, kRegionsMax> all{};

  /// The offset in the image of the byte at `address`.
  std::optional<std::uint64_t> offset_of(std::uint64_t address) const;
  /// Follows mremap(2) of `length` bytes. Regions that were at `to` are gone, as their mapping is.
  /// False: there are too many parts, and a part was forgotten.
  bool move(std::uint64_t from, std::uint64_t to, std::uint64_t length);

 private:
  bool add(const Region& region);
  bool remove(std::uint64_t address, std::uint64_t length);
};

}  // namespace stdchk::pager
