#include <isa-l/crc.h>

#include <algorithm>

#include "core/chunk/naming.h"

namespace stdchk {

std::uint32_t crc32c(std::uint32_t crc, ByteSpan bytes) {
  // ISA-L works on the raw register, which RFC 3720 inverts before and after.
  std::uint32_t state = ~crc;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), 1U << 30));
    // The parameter is not const, but ISA-L only reads it.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(part.data()));
    state = crc32_iscsi(data, static_cast<int>(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
}

}  // namespace stdchk
