#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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

/// A ChunkName is the name of a chunk's content, defined in core/naming.h. All zeros: not named.
struct ChunkName {
  std::array<std::byte, 32> bytes{};
  auto operator<=>(const ChunkName&) const = default;
  bool is_named() const { return *this != ChunkName{}; }
};

/// An Extent is the place of a copy of a chunk. `offset` is where its header starts in the arena;
/// the chunk's bytes follow the header (core/extent_header.h).
struct Extent {
  BenefactorId benefactor;
  std::uint64_t offset = 0;
  auto operator<=>(const Extent&) const = default;
};

/// A Chunk is a run of bytes that is stored, checked and shared as a whole.
struct Chunk {
  ChunkName name;              ///< unset where naming is off
  std::uint32_t length = 0;    ///< bytes of content, without the header
  std::uint32_t crc = 0;       ///< CRC32C of the content
  std::vector<Extent> copies;  ///< empty: the bytes are only in the drain directory
  bool operator==(const Chunk&) const = default;
};

/// A Slice maps a range of a file to a chunk. `length` bytes of the file from `file_offset` on are
/// the chunk's bytes from `chunk_offset` on. `chunk` is an index into the map's chunks.
struct Slice {
  std::uint64_t file_offset = 0;
  std::uint32_t length = 0;
  std::uint32_t chunk_offset = 0;
  std::uint32_t chunk = 0;
  bool operator==(const Slice&) const = default;
};

/// A ChunkMap is the content of a version of a file: slices in ascending order that do not overlap.
/// Ranges without a slice read as zeros.
struct ChunkMap {
  std::vector<Chunk> chunks;
  std::vector<Slice> slices;
  bool operator==(const ChunkMap&) const = default;
};

/// A Grant is a lease on an empty, contiguous part of an arena. Its client carves extents in it.
struct Grant {
  GrantId id;
  BenefactorId benefactor;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  /// Only chunks whose first place is on this benefactor may use the grant; none: any chunk may.
  BenefactorId first{};
  /// Within a session, grants with equal values are on benefactors that may fail together.
  std::uint64_t domain = 0;
  bool operator==(const Grant&) const = default;
};

/// Says whether chunks are named by their content, so that equal chunks are stored once.
enum class Naming : std::uint8_t {
  kOff = 0,
  kAuto = 1,  ///< only while a series of images has chunks that the pool already stores
  kOn = 2,
};
/// Returns "off", "auto" or "on".
std::string_view naming_text(Naming naming);
/// Parses these words; nullopt for any other text.
std::optional<Naming> parse_naming(std::string_view text);

/// Says how the chunks of a version were named at the last write. Wire and
/// journal contain the numbers.
enum class NamingState : std::uint8_t {
  kUnknown = 0,    ///< the writer has not reported it, or has written no chunks
  kOff = 1,        ///< no chunk is named by content
  kOn = 2,         ///< all chunks are named
  kDidNotPay = 3,  ///< under Naming::kAuto, at the end: only samples are named
};

enum class FileType : std::uint8_t { kRegular = 1, kDirectory = 2, kSymlink = 3 };

/// How far the newest version of an image is on its way to the parallel file system.
enum class DrainState : std::uint8_t {
  kNone = 0,     ///< no drain directory, nothing committed, or left out by drain-every
  kPending = 1,  ///< waits for its turn
  kRunning = 2,
  kDrained = 3,  ///< whole under its own name, durable, verified
  kFailed = 4,   ///< will be tried again
};
/// Returns the word that users see, such as "pending".
std::string_view drain_name(DrainState state);

/// File attributes, with the size and times of one version.
struct Attributes {
  FileId id;
  FileType type = FileType::kRegular;
  std::uint32_t mode = 0;  ///< permission bits only, 07777
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t link_count = 1;
  std::uint64_t size_bytes = 0;
  std::uint64_t stored_bytes = 0;  ///< bytes of the slices, without holes
  Version version = 0;
  std::int64_t atime_ns = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
  DrainState drain = DrainState::kNone;
  std::uint32_t copies = 0;  ///< redundancy that each chunk should have: the number of a Redundancy
  NamingState naming = NamingState::kUnknown;
  bool operator==(const Attributes&) const = default;
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
