#include "transport/transfer_check.h"

namespace stdchk::transport {

namespace {

bool inside(std::uint64_t offset, std::uint64_t length, std::uint64_t total) {
  return offset <= total && length <= total - offset;
}

}  // namespace

Result<std::size_t> transfer_bytes(std::span<const LocalPiece> pieces, const RemoteKey& key,
                                   std::uint64_t offset, std::size_t bytes_max) {
  constexpr const char* kWhere = "transport.rma";
  if (pieces.empty() || pieces.size() > kPiecesMax) return fail(Code::kInvalidArgument, kWhere);
  std::size_t total = 0;
  for (const LocalPiece& piece : pieces) {
    if (piece.region == nullptr) return fail(Code::kInvalidArgument, kWhere);
    const MutableByteSpan memory = piece.region->bytes();
    const auto from = static_cast<std::uint64_t>(piece.data - memory.data());
    if (piece.data < memory.data() || !inside(from, piece.length, memory.size())) {
      return fail(Code::kInvalidArgument, kWhere);
    }
    total += piece.length;
  }
  if (total == 0) return fail(Code::kInvalidArgument, kWhere);
  if (total > bytes_max) return fail(Code::kTooLarge, kWhere);
  if (!inside(offset, total, key.length)) return fail(Code::kInvalidArgument, kWhere);
  return total;
}

}  // namespace stdchk::transport
