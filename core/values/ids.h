#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace stdchk {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

/// An Id is a number that the compiler does not mix up with other kinds of numbers. 0 means "none".
template <class Tag>
struct Id {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  auto operator<=>(const Id&) const = default;
};

using FileId = Id<struct FileTag>;              ///< an inode of the pool; never reused
using ClientId = Id<struct ClientTag>;          ///< a registration of a client; never reused
using SessionId = Id<struct SessionTag>;        ///< from open to close of a file; never reused
using BenefactorId = Id<struct BenefactorTag>;  ///< one life of an arena; never reused
using GrantId = Id<struct GrantTag>;            ///< a lease on an empty segment; never reused
using Epoch = Id<struct EpochTag>;              ///< one life of the manager

/// Counts the committed states of a file, from 1. 0: nothing is committed yet.
using Version = std::uint64_t;

inline constexpr FileId kRootFile{1};

/// A ChunkName is the name of a chunk's content, defined in core/chunk/naming.h. All zeros: not
/// named.
struct ChunkName {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const ChunkName&) const = default;
  bool is_named() const { return *this != ChunkName{}; }
};

/// The range of valid values of an enumeration that is decoded from a message (range_of()).
template <class Enum>
struct EnumRange {
  Enum first;
  Enum last;
};

}  // namespace stdchk

template <class Tag>
struct std::hash<stdchk::Id<Tag>> {
  std::size_t operator()(const stdchk::Id<Tag>& id) const noexcept {
    return static_cast<std::size_t>(id.value * 0x9E3779B97F4A7C15ULL);
  }
};

template <>
struct std::hash<stdchk::ChunkName> {
  std::size_t operator()(const stdchk::ChunkName& name) const noexcept {
    std::size_t prefix;
    static_assert(sizeof(prefix) <= sizeof(name.bytes));
    __builtin_memcpy(&prefix, name.bytes.data(), sizeof(prefix));
    return prefix;
  }
};
