#include "fork/multicast/send_rate.h"

#include <algorithm>

namespace stdchk::multicast {
namespace {

using std::chrono::milliseconds;

/// Added to the rate each kRaise: a 32nd of the start, at least this many bytes a second.
constexpr double kStepLeast = 0.25e6;
constexpr double kStepShare = 1.0 / 32;
constexpr auto kRaise = milliseconds(10);
/// After a longer pause the rate does not catch up.
constexpr auto kRaisePauseMax = milliseconds(200);
constexpr double kBackOff = 0.75;
constexpr auto kMeasure = milliseconds(20);
/// Limits of the burst after a pause, in seconds of the rate and in bytes.
constexpr double kBurstSeconds = 0.004;
constexpr double kBurstLeast = 96 * 1024;
constexpr double kUnicastShare = 0.25;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void SendRate::advance(Time now, bool is_waiting) {
  if (advanced_ == Time{}) advanced_ = raised_ = measured_ = now;
  const double passed = seconds(now - advanced_);
  advanced_ = now;
  const double most = std::max(kBurstLeast, rate_ * kBurstSeconds);
  credit_ = std::min(credit_ + passed * rate_, most);
  unicast_credit_ = std::min(unicast_credit_ + passed * rate_ * kUnicastShare, most);
  if (now - measured_ >= kMeasure) {
    const double rate = sent_bytes_ / seconds(now - measured_);
    sent_rate_ = sent_rate_ == 0 ? rate : 0.7 * sent_rate_ + 0.3 * rate;
    sent_bytes_ = 0;
    measured_ = now;
  }
  while (now - raised_ >= kRaise) {
    raised_ += kRaise;
    const double step = std::max(kStepLeast, limits_.start * kStepShare);
    if (is_waiting) rate_ = std::min(rate_ + step, limits_.most);
    if (now - raised_ > kRaisePauseMax) raised_ = now;
  }
}

Time SendRate::time_of(Time now, double bytes) const {
  const auto wait = static_cast<std::int64_t>(1e9 * (bytes - credit_) / rate_);
  return now + std::chrono::nanoseconds(wait) + std::chrono::microseconds(1);
}

void SendRate::spend_on_all(double bytes) {
  credit_ -= bytes;
  sent_bytes_ += bytes;
}

void SendRate::spend_on_one(double bytes) {
  unicast_credit_ = std::max(0.0, unicast_credit_ - bytes);
  credit_ -= bytes;
}

bool SendRate::back_off(Time now, double mean, Duration interval) {
  if (now - backed_off_ < interval) return false;
  backed_off_ = now;
  const double from = mean > 0 ? std::min(mean, rate_) : rate_;
  rate_ = std::clamp(kBackOff * from, limits_.least, limits_.most);
  return true;
}

}  // namespace stdchk::multicast
