#include "benefactor/memory/chunk_check.h"

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::benefactor {

Result<ByteSpan> find_extent(ByteSpan arena, const ExpectedChunk& expected) {
  constexpr const char* kWhere = "benefactor.extent";
  if (expected.length == 0 || expected.length > limits::kChunkBytesMax) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  const std::uint64_t bytes = extent_bytes(expected.length);
  if (expected.extent_offset % limits::kExtentAlignment != 0 || bytes > arena.size() ||
      expected.extent_offset > arena.size() - bytes) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  return arena.subspan(expected.extent_offset, limits::kExtentHeaderBytes + expected.length);
}

Status check_chunk(ByteSpan extent, const ExpectedChunk& expected) {
  constexpr const char* kWhere = "benefactor.check_chunk";
  STDCHK_ASSIGN(const ExtentHeader header,
                decode_extent_header(extent.first(limits::kExtentHeaderBytes)));
  const ByteSpan content = extent.subspan(limits::kExtentHeaderBytes);
  if (header.length != expected.length || content.size() != expected.length ||
      header.crc != expected.crc || crc32c(0, content) != expected.crc) {
    return fail(Code::kCorrupt, kWhere);
  }
  if (!expected.name.is_named()) return {};
  // Without the key, only the checksum of a sealed chunk can be verified.
  const bool right = header.name == expected.name &&
                     (is_sealed(expected.name) || name_chunk(content) == expected.name);
  return right ? Status{} : fail(Code::kCorrupt, kWhere);
}

}  // namespace stdchk::benefactor
