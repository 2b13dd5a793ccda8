#include "benefactor/drain/staged_pieces.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>

#include "core/base/limits.h"
#include "core/chunk/naming.h"
#include "core/objects/object_attributes.h"

namespace stdchk::benefactor {
namespace {

constexpr std::uint64_t kMark = 0x3153454345495053;  // "SPIECES1", the least significant byte first
constexpr std::size_t kEntryBytes = 24;              // offset, length, crc
constexpr std::size_t kEndBytes = 16;                // count, mark
/// Most lists are shorter, and are read with one request.
constexpr std::uint64_t kFirstReadBytes = 16 * 1024;
constexpr std::uint64_t kEntriesMax = 4 * limits::kMapPageSlicesMax;

void append(std::vector<std::byte>& out, std::uint64_t value) {
  for (int byte = 0; byte < 8; ++byte) {
    out.push_back(static_cast<std::byte>(value >> (8 * byte) & 0xFF));
  }
}

std::uint64_t number_at(ByteSpan bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t byte = 8; byte-- > 0;) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + byte]);
  }
  return value;
}

tl::unexpected<Problem> no_list(const std::string& key) {
  return problem(Code::kMalformed, "benefactor.staged", EPROTO,
                 fmt::format("The object {} does not hold the pieces of a file.", key));
}

}  // namespace

void add_staged(std::vector<StagedPiece>& pieces, std::uint64_t offset, ByteSpan bytes) {
  std::uint64_t at = pieces.empty() ? 0 : pieces.back().at + pieces.back().length;
  while (!bytes.empty()) {
    constexpr std::uint64_t kRange = ObjectAttributes::kRangeBytesMin;
    const std::size_t length =
        std::min<std::uint64_t>(bytes.size(), (offset / kRange + 1) * kRange - offset);
    const ByteSpan part = bytes.first(length);
    pieces.push_back({offset, static_cast<std::uint32_t>(length), crc32c(0, part), 0, at});
    offset += length;
    at += length;
    bytes = bytes.subspan(length);
  }
}

std::vector<std::byte> staged_list(const std::vector<StagedPiece>& pieces) {
  std::vector<std::byte> out;
  out.reserve(pieces.size() * kEntryBytes + kEndBytes);
  for (const StagedPiece& piece : pieces) {
    append(out, piece.offset);
    append(out, piece.length);
    append(out, piece.crc);
  }
  append(out, pieces.size());
  append(out, kMark);
  return out;
}

Outcome<std::vector<StagedPiece>> read_staged_list(ObjectStore& store,
                                                   const ObjectStore::Listed& object,
                                                   std::uint32_t source, Time deadline) {
  const std::uint64_t size = object.size_bytes;
  if (size < kEndBytes) return no_list(object.key);
  std::vector<std::byte> end(std::min(size, kFirstReadBytes));
  if (auto got = store.get(object.key, {size - end.size(), end}, deadline); !got) {
    return problem(got.error());
  }
  const std::uint64_t count = number_at(end, end.size() - kEndBytes);
  const bool is_list = number_at(end, end.size() - kEndBytes + 8) == kMark && count <= kEntriesMax;
  const std::uint64_t list_bytes = is_list ? count * kEntryBytes + kEndBytes : 0;
  if (!is_list || list_bytes > size) return no_list(object.key);
  if (list_bytes > end.size()) {
    end.resize(list_bytes);
    if (auto got = store.get(object.key, {size - list_bytes, end}, deadline); !got) {
      return problem(got.error());
    }
  }
  std::vector<StagedPiece> pieces;
  std::uint64_t at = 0;
  for (std::size_t entry = end.size() - list_bytes; pieces.size() < count; entry += kEntryBytes) {
    const std::uint64_t length = number_at(end, entry + 8);
    if (length == 0 || length > limits::kChunkBytesMax) return no_list(object.key);
    pieces.push_back({number_at(end, entry), static_cast<std::uint32_t>(length),
                      static_cast<std::uint32_t>(number_at(end, entry + 16)), source, at});
    at += length;
  }
  if (at + list_bytes != size) return no_list(object.key);
  return pieces;
}

std::string staged_name(const msg::DrainPieces& request) {
  std::vector<std::byte> list;
  for (const msg::DrainPiece& piece : request.pieces) {
    append(list, piece.file_offset);
    append(list, piece.length);
  }
  const std::uint64_t first = request.pieces.empty() ? 0 : request.pieces.front().file_offset;
  return fmt::format("{:016x}-{:08x}-{}", first, crc32c(0, list), request.pieces.size());
}

}  // namespace stdchk::benefactor
