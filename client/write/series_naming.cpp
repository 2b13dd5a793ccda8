#include "client/write/series_naming.h"

#include <utility>

namespace stdchk::client {

void SeriesNaming::Crcs::add(std::uint32_t crc) {
  if (!keeps(crc)) return;
  kept.insert(crc);
  while (kept.size() > kCrcsMost) {
    one_of *= 2;
    std::erase_if(kept, [&](std::uint32_t each) { return !keeps(each); });
  }
}

void SeriesNaming::record_chunk(std::uint32_t crc, std::uint32_t bytes) {
  if (mode_ != Naming::kAuto) return;
  crcs_.add(crc);
  if (!sampling_ || !earlier_.keeps(crc)) return;
  judge(std::uint64_t{bytes} * earlier_.one_of, earlier_.kept.contains(crc));
}

void SeriesNaming::judge(std::uint32_t crc, std::uint32_t bytes, bool found) {
  if (mode_ != Naming::kAuto) return;
  if (!sampling_) {
    if (earlier_named_all_) judge(bytes, found);
  } else if (found && is_sample(crc)) {  // record_chunk() has counted the other chunks
    judge(std::uint64_t{bytes} * kSampledOneOf, true);
  }
}

void SeriesNaming::judge(std::uint64_t bytes, bool found) {
  judged_ += bytes;
  if (found) found_ += bytes;
  // While only samples are named, enough finds for a whole judgement suffice: name all at once.
  const bool pays = found_ * kPaysOneOf >= (sampling_ ? judged_max_ : judged_);
  if (judged_ < judged_max_ && !(sampling_ && pays)) return;
  sampling_ = !pays;
  judged_ = found_ = 0;
}

void SeriesNaming::committed(bool named_all) {
  compare_with(named_all);
  earlier_ = std::exchange(crcs_, {});
}

}  // namespace stdchk::client
