#include "benefactor/metadata_log.h"

#include <algorithm>

#include "core/limits.h"

namespace stdchk::benefactor {

MetadataLog::MetadataLog(std::uint64_t bytes_max) : half_bytes_(bytes_max / 2) {
  for (Half& half : halves_) {
    // Touched, so that what was promised is there when it is needed; the size is set back.
    half.bytes.resize(half_bytes_);
    half.bytes.clear();
  }
}

Status MetadataLog::keep(const msg::KeepLog& request) {
  constexpr const char* kWhere = "benefactor.keep_log";
  const Epoch newest = std::max({halves_[0].epoch, halves_[1].epoch, floor_});
  if (request.epoch < newest || !request.epoch) return fail(Code::kFenced, kWhere);
  if (request.begins) {
    halves_[1 - counts_] = {std::move(halves_[1 - counts_].bytes), 0, request.epoch, 0};
    halves_[1 - counts_].bytes.clear();
    beginning_ = true;
  }
  Half& half = halves_[beginning_ ? 1 - counts_ : counts_];
  if (half.epoch != request.epoch || half.bytes.size() != request.offset) {
    return fail(Code::kStale, kWhere);
  }
  if (request.bytes.size() > half_bytes_ - half.bytes.size()) return fail(Code::kNoSpace, kWhere);
  const auto* const first = reinterpret_cast<const std::byte*>(request.bytes.data());
  half.bytes.insert(half.bytes.end(), first, first + request.bytes.size());
  if (request.sequence == 0) return {};
  half.sequence = request.sequence;
  half.whole_bytes = half.bytes.size();
  if (beginning_) counts_ = 1 - counts_;
  beginning_ = false;
  return {};
}

Result<msg::ReadLog::Reply> MetadataLog::read(std::uint64_t offset) const {
  constexpr const char* kWhere = "benefactor.read_log";
  if (whole().sequence == 0) return fail(Code::kNotFound, kWhere);
  if (offset > whole().whole_bytes) return fail(Code::kInvalidArgument, kWhere);
  const std::uint64_t count =
      std::min<std::uint64_t>(whole().whole_bytes - offset, limits::kLogPieceBytesMax);
  const auto* const first = reinterpret_cast<const char*>(whole().bytes.data()) + offset;
  return msg::ReadLog::Reply{std::string(first, count), offset + count < whole().whole_bytes};
}

}  // namespace stdchk::benefactor
