#include "transport/tcp/frame.h"

#include "transport/message_limit.h"

namespace stdchk::transport::tcp {
namespace {

constexpr unsigned kByteBits = 8;
constexpr std::size_t kLastAt = 1;
constexpr std::size_t kZeroAt = 2;
constexpr std::size_t kLengthAt = 4;
constexpr std::size_t kIdAt = 8;
constexpr std::size_t kKeyAt = 16;
constexpr std::size_t kOffsetAt = 24;

template <class Number>
void put(std::span<std::byte> bytes, std::size_t at, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes[at + i] = static_cast<std::byte>(number >> (kByteBits * i));
  }
}

template <class Number>
Number get(std::span<const std::byte> bytes, std::size_t at) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number |= static_cast<Number>(std::to_integer<Number>(bytes[at + i]) << (kByteBits * i));
  }
  return number;
}

/// Checks that the header uses the fields of its type only, and that its length is allowed.
bool is_sound(const FrameHeader& header) {
  const bool uses_memory = header.key != 0;
  switch (header.type) {
    case FrameType::kHello:
      return !header.last && header.length == 0 && header.key <= 1 && header.offset == 0;
    case FrameType::kMessage:
      return !header.last && header.length <= kMessageBytesMax && header.id == 0 &&
             header.key == 0 && header.offset == 0;
    case FrameType::kWrite:
      return uses_memory && header.length > 0 && header.length <= FrameHeader::kContentBytesMax;
    case FrameType::kWritten:
      return !header.last && header.length == 0 && header.key == 0 && header.offset == 0;
    case FrameType::kRead:
      return !header.last && uses_memory && header.length > 0 && header.length <= kTransferBytesMax;
    case FrameType::kReadData:
      return !header.last && header.length > 0 && header.key == 0 &&
             header.length <= FrameHeader::kContentBytesMax;
    case FrameType::kGrant:
      return !header.last && uses_memory && header.length == GrantContent::kBytes;
  }
  return false;
}

constexpr std::size_t kProofLowAt = 8;
constexpr std::size_t kProofHighAt = 16;

}  // namespace

GrantContent::Bytes GrantContent::encode() const {
  Bytes bytes{};
  put(bytes, 0, length);
  put(bytes, kProofLowAt, proof_low);
  put(bytes, kProofHighAt, proof_high);
  return bytes;
}

GrantContent GrantContent::decode(std::span<const std::byte, kBytes> bytes) {
  return {get<std::uint64_t>(bytes, 0), get<std::uint64_t>(bytes, kProofLowAt),
          get<std::uint64_t>(bytes, kProofHighAt)};
}

FrameHeader::Bytes FrameHeader::encode() const {
  Bytes bytes{};
  bytes[0] = static_cast<std::byte>(type);
  bytes[kLastAt] = std::byte{last};
  put(bytes, kLengthAt, length);
  put(bytes, kIdAt, id);
  put(bytes, kKeyAt, key);
  put(bytes, kOffsetAt, offset);
  return bytes;
}

std::optional<FrameHeader> FrameHeader::decode(std::span<const std::byte, kBytes> bytes) {
  if (bytes[kLastAt] > std::byte{1} || bytes[kZeroAt] != std::byte{0} ||
      bytes[kZeroAt + 1] != std::byte{0}) {
    return std::nullopt;
  }
  const FrameHeader header{.type = static_cast<FrameType>(bytes[0]),
                           .last = bytes[kLastAt] == std::byte{1},
                           .length = get<std::uint32_t>(bytes, kLengthAt),
                           .id = get<std::uint64_t>(bytes, kIdAt),
                           .key = get<std::uint64_t>(bytes, kKeyAt),
                           .offset = get<std::uint64_t>(bytes, kOffsetAt)};
  if (!is_sound(header)) return std::nullopt;
  return header;
}

std::size_t FrameHeader::content_bytes() const { return type == FrameType::kRead ? 0 : length; }

}  // namespace stdchk::transport::tcp
