#include "benefactor/memory/metadata_log.h"

#include <algorithm>
#include <cstring>

#include "core/base/limits.h"

namespace stdchk::benefactor {
namespace {

LogRoom half_of(const LogRoom& room) {
  return {room.base_bytes / 2, room.bytes_max / 2, room.may_grow};
}

}  // namespace

MetadataLog::MetadataLog(const LogRoom& room)
    : halves_{{LogMemory(half_of(room))}, {LogMemory(half_of(room))}} {}

Status MetadataLog::store(const msg::KeepLog& request) {
  constexpr const char* kWhere = "benefactor.keep_log";
  const Epoch newest = std::max({halves_[0].epoch, halves_[1].epoch, floor_});
  if (request.epoch < newest || !request.epoch) return fail(Code::kFenced, kWhere);
  if (request.begins) {
    Half& begun = halves_[1 - counts_];
    begun.bytes = begun.whole_bytes = begun.sequence = 0;
    begun.epoch = request.epoch;
    beginning_ = true;
  }
  Half& half = halves_[beginning_ ? 1 - counts_ : counts_];
  if (half.epoch != request.epoch || half.bytes != request.offset) {
    return fail(Code::kStale, kWhere);
  }
  if (request.bytes.size() > half_bytes_max() - half.bytes ||
      !half.memory.ensure(half.bytes + request.bytes.size())) {
    return fail(Code::kNoSpace, kWhere);
  }
  if (!request.bytes.empty()) {
    std::memcpy(half.memory.data() + half.bytes, request.bytes.data(), request.bytes.size());
  }
  half.bytes += request.bytes.size();
  if (request.sequence == 0) return {};
  half.sequence = request.sequence;
  half.whole_bytes = half.bytes;
  if (beginning_) {
    // The new log counts from now on. The old one gives its memory back.
    counts_ = 1 - counts_;
    halves_[1 - counts_].bytes = halves_[1 - counts_].whole_bytes = 0;
    halves_[1 - counts_].memory.trim(0);
  }
  beginning_ = false;
  return {};
}

Result<msg::ReadLog::Reply> MetadataLog::read(std::uint64_t offset) const {
  constexpr const char* kWhere = "benefactor.read_log";
  if (whole().sequence == 0) return fail(Code::kNotFound, kWhere);
  if (offset > whole().whole_bytes) return fail(Code::kInvalidArgument, kWhere);
  const std::uint64_t count =
      std::min<std::uint64_t>(whole().whole_bytes - offset, limits::kLogPieceBytesMax);
  const auto* const first = reinterpret_cast<const char*>(whole().memory.data()) + offset;
  return msg::ReadLog::Reply{std::string(first, count), offset + count < whole().whole_bytes};
}

}  // namespace stdchk::benefactor
