#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error_codes.h"
#include "core/messages/messages.h"
#include "metrics/histogram.h"

namespace stdchk::manager {

/// Returns the name that metrics use for a kind of request: its name in
/// core/messages, such as "get map".
std::string_view request_name(std::size_t kind);

/// A RequestCounts counts requests by kind, which is their index in msg::AnyRequest: the time until
/// the answer, and the errors.
///
/// Threads: one.
class RequestCounts {
 public:
  RequestCounts();
  void count(std::size_t kind, Duration took);
  void count_error(std::size_t kind, Code code) { ++errors_[{kind, code}]; }

  /// Indexed by kind.
  const std::deque<metrics::Histogram>& times() const { return times_; }
  const std::map<std::pair<std::size_t, Code>, std::uint64_t>& errors() const { return errors_; }

 private:
  std::deque<metrics::Histogram> times_;
  std::map<std::pair<std::size_t, Code>, std::uint64_t> errors_;
};

}  // namespace stdchk::manager
