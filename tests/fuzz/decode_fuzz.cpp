// Feeds arbitrary bytes to the message decoders. An accepted message must be encodable, and must
// decode to an equal message.

#include <cstdint>

#include "core/base/assert.h"
#include "core/chunk/extent_header.h"
#include "core/messages/codec.h"

using namespace stdchk;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteSpan bytes(reinterpret_cast<const std::byte*>(data), size);
  static std::vector<std::byte> again;
  if (const auto envelope = msg::decode(bytes); envelope.has_value()) {
    STDCHK_ASSERT(msg::encode(*envelope, again).has_value());
    const auto repeated = msg::decode(again);
    STDCHK_ASSERT(repeated.has_value() && *repeated == *envelope);
  }
  if (const auto header = decode_extent_header(bytes); header.has_value()) {
    std::byte out[limits::kExtentHeaderBytes];
    encode_extent_header(*header, out);
    STDCHK_ASSERT(*decode_extent_header(out) == *header);
  }
  return 0;
}
