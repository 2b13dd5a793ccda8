#include "client/series_naming.h"

namespace stdchk::client {

void SeriesNaming::judge(std::uint32_t crc, std::uint32_t bytes, bool found) {
  if (mode_ != Naming::kAuto || earlier_ == Earlier::kNothing) return;
  // Of an image whose samples alone were named, only samples can be found again.
  const bool samples_only = sampling_ || earlier_ == Earlier::kSamples;
  if (samples_only && !is_sample(crc)) return;
  const std::uint64_t stands_for = std::uint64_t{bytes} * (samples_only ? kSampledOneOf : 1);
  judged_ += stands_for;
  if (found) found_ += stands_for;
  // Samples that were found are enough for all that is judged: the rest of it is named at once.
  const bool pays_already = sampling_ && found_ * kPaysOneOf >= judged_max_;
  if (judged_ < judged_max_ && !pays_already) return;
  sampling_ = found_ * kPaysOneOf < judged_;
  judged_ = found_ = 0;
}

}  // namespace stdchk::client
