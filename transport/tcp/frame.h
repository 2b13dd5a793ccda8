#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/limits.h"
#include "core/values/types.h"

/// Frames travel inside TLS. Each frame is a header of fixed size and content. The header has the
/// content's length.
namespace stdchk::transport::tcp {

inline constexpr std::size_t kTransfersMax = 128;  ///< of one end, in flight on a link
inline constexpr std::size_t kTransferBytesMax = limits::kGiB;

/// Numbers on the wire.
enum class FrameType : std::uint8_t {
  kHello = 1,  ///< the first frame of each end. id: kProtocolVersion. key: 1 of the accepting end:
               ///< content in clear
  kMessage = 2,  ///< content: the message
  // Longer content of kWrite and kReadData uses the ContentChannel, if the hello says so.
  kWrite = 3,     ///< content goes to `offset` in the region of `key`
  kWritten = 4,   ///< all frames of write `id` are in memory
  kRead = 5,      ///< asks for `length` bytes at `offset` in the region of `key`; no content
  kReadData = 6,  ///< content: the bytes of read `id` from its byte `offset` on
  kGrant = 7,  ///< grant `id` of a part at `offset` of the region of `key`; content: GrantContent
};

/// The content of a kGrant frame: length of the part (8), proof (16), with the low byte first.
struct GrantContent {
  static constexpr std::size_t kBytes = 24;
  using Bytes = std::array<std::byte, kBytes>;
  std::uint64_t length = 0;
  std::uint64_t proof_low = 0;
  std::uint64_t proof_high = 0;

  Bytes encode() const;
  static GrantContent decode(std::span<const std::byte, kBytes> bytes);
};

/// A FrameHeader says what follows. On the wire: type (1), last (1), zero (2), length (4), id (8),
/// key (8), offset (8), all with the low byte first.
struct FrameHeader {
  static constexpr std::size_t kBytes = 32;
  /// So that a frame is 16 full TLS records.
  static constexpr std::size_t kContentBytesMax = 256 * limits::kKiB - kBytes;
  /// Content up to this length follows its header inside TLS, also where content goes in clear. A
  /// second socket costs a short transfer more than encryption does.
  static constexpr std::size_t kInlineBytesMax = 16 * limits::kKiB;
  using Bytes = std::array<std::byte, kBytes>;

  FrameType type = FrameType::kHello;
  bool last = false;  ///< the last frame of a write
  std::uint32_t length = 0;
  std::uint64_t id = 0;
  std::uint64_t key = 0;
  std::uint64_t offset = 0;
  bool operator==(const FrameHeader&) const = default;

  Bytes encode() const;
  /// Returns nothing for an unknown type, for a wrong length, or for a field that is set although
  /// the type does not use it.
  static std::optional<FrameHeader> decode(std::span<const std::byte, kBytes> bytes);
  /// Returns the number of content bytes that follow the header.
  std::size_t content_bytes() const;
};

}  // namespace stdchk::transport::tcp
