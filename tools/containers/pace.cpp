#include "tools/containers/pace.h"

#include <algorithm>
#include <chrono>

#include "core/base/units.h"
#include "tools/lab/advice.h"
#include "tools/lab/job_plan.h"

namespace stdchk::tools {
namespace {

/// The cost of a set is known after the first set.
constexpr auto kFirst = std::chrono::seconds(60);
constexpr const char* kNever = "never";

}  // namespace

Outcome<Pace> Pace::of(const PaceOptions& options, std::size_t nodes) {
  Pace pace;
  pace.advised_ = options.every.empty();
  if (options.advise && !pace.advised_) {
    return problem("--every and --advise exclude each other");
  }
  if (options.every == kNever) return pace;
  if (!pace.advised_) {
    const auto every = parse_seconds(options.every);
    if (!every || *every == 0) {
      return problem("--every {} is not a time such as 10m; the word never saves on demand only",
                     options.every);
    }
    pace.every_ = std::chrono::seconds(*every);
    return pace;
  }
  std::uint64_t mtbf_s = JobFigures{}.node_mtbf_s;
  if (!options.mtbf.empty()) {
    const auto given = parse_seconds(options.mtbf);
    if (!given || *given == 0) return problem("--mtbf {} is not a time such as 365d", options.mtbf);
    mtbf_s = *given;
  }
  pace.job_mtbf_s_ =
      static_cast<double>(mtbf_s) / static_cast<double>(std::max<std::size_t>(nodes, 1));
  pace.every_ = kFirst;
  return pace;
}

Duration Pace::after(Duration pause, Duration complete) const {
  const double pause_s = std::chrono::duration<double>(pause).count();
  const double interval_s = daly_interval(std::max(pause_s, 0.001), job_mtbf_s_);
  return std::max(complete,
                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(interval_s)));
}

}  // namespace stdchk::tools
