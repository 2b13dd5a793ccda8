#include "core/chunk/extent_header.h"

#include <algorithm>

#include "core/chunk/naming.h"

namespace stdchk {
namespace {

// Offsets of the fields, as in the table of docs/internals/formats.md.
constexpr std::size_t kMagicAt = 0;
constexpr std::size_t kHeaderCrcAt = 4;
constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kCrcAt = 12;
constexpr std::size_t kFileAt = 16;
constexpr std::size_t kIndexAt = 24;
constexpr std::size_t kReservedAt = 28;
constexpr std::size_t kNameAt = 32;
static_assert(kNameAt + sizeof(ChunkName) == limits::kExtentHeaderBytes);

template <class T>
void store(std::byte* at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    at[i] = static_cast<std::byte>(value >> (8 * i) & 0xFF);
}
template <class T>
T load(const std::byte* at) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = value << 8 | std::to_integer<T>(at[i]);
  return value;
}

/// Returns the CRC32C of the header without its own CRC field.
std::uint32_t header_crc(ByteSpan header) {
  return crc32c(crc32c(0, header.first(kHeaderCrcAt)), header.subspan(kLengthAt));
}

}  // namespace

void encode_extent_header(const ExtentHeader& header, std::byte* out) {
  store(out + kMagicAt, kExtentHeaderMagic);
  store(out + kLengthAt, header.length);
  store(out + kCrcAt, header.crc);
  store(out + kFileAt, header.file.value);
  store(out + kIndexAt, header.index);
  store(out + kReservedAt, std::uint32_t{0});
  std::copy(header.name.bytes.begin(), header.name.bytes.end(), out + kNameAt);
  store(out + kHeaderCrcAt, header_crc(ByteSpan(out, limits::kExtentHeaderBytes)));
}

Result<ExtentHeader> decode_extent_header(ByteSpan bytes) {
  if (bytes.size() < limits::kExtentHeaderBytes) return fail(Code::kCorrupt, "extent.header");
  const ByteSpan raw = bytes.first(limits::kExtentHeaderBytes);
  if (load<std::uint32_t>(raw.data() + kMagicAt) != kExtentHeaderMagic ||
      load<std::uint32_t>(raw.data() + kHeaderCrcAt) != header_crc(raw)) {
    return fail(Code::kCorrupt, "extent.header");
  }
  ExtentHeader header;
  header.length = load<std::uint32_t>(raw.data() + kLengthAt);
  header.crc = load<std::uint32_t>(raw.data() + kCrcAt);
  header.file.value = load<std::uint64_t>(raw.data() + kFileAt);
  header.index = load<std::uint32_t>(raw.data() + kIndexAt);
  std::copy_n(raw.data() + kNameAt, header.name.bytes.size(), header.name.bytes.begin());
  if (header.length > limits::kChunkBytesMax) return fail(Code::kCorrupt, "extent.header");
  return header;
}

}  // namespace stdchk
