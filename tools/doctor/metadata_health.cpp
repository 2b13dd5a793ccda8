#include "tools/doctor/metadata_health.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "core/base/units.h"
#include "tools/base/connection.h"

namespace stdchk::tools {
namespace {

using namespace std::chrono_literals;
using Kind = Finding::Kind;

std::string joined(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& sentence : sentences) out += (out.empty() ? "" : " ") + sentence;
  return out;
}

}  // namespace

Finding examine_metadata(const PoolRecord& pool) {
  constexpr const char* kWhat = "metadata";
  auto filesystem = connect(pool);
  if (!filesystem) return {Kind::kBad, kWhat, filesystem.error().text, "see `stdchk status`", {}};
  const auto answer = (*filesystem)->stat_pool();
  if (!answer) {
    return {Kind::kBad, kWhat, describe(answer.error()), "see `stdchk status`", {}};
  }
  const bool standby = !answer->standby.empty();
  Finding finding{
      Kind::kGood,
      kWhat,
      fmt::format("on {} benefactors, which need {} of {} for it", answer->log_copies,
                  format_bytes(answer->log_bytes_needed), format_bytes(answer->log_bytes_max)),
      joined(answer->log_advice),
      {{"log_copies", answer->log_copies},
       {"log_bytes_needed", answer->log_bytes_needed},
       {"log_bytes_max", answer->log_bytes_max},
       {"standby_keepers", answer->standby_quorum},
       {"standby_reached", answer->standby_reached}}};
  if (answer->log_advice.empty()) return finding;
  // Metadata that a standby cannot take over are lost with the manager's host.
  const bool lacks_majority = 2 * answer->standby_reached <= answer->standby_quorum;
  finding.kind = answer->log_copies == 0 || (standby && lacks_majority) ? Kind::kBad : Kind::kNote;
  return finding;
}

std::vector<std::string> metadata_warnings(const PoolRecord& pool, Duration patience) {
  auto filesystem = connect(pool);
  if (!filesystem) return {filesystem.error().text};
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto answer = (*filesystem)->stat_pool();
    if (!answer) return {describe(answer.error())};
    const bool kept = answer->log_advice.empty() && answer->log_copies > 0;
    if (kept || std::chrono::steady_clock::now() >= until) return answer->log_advice;
    std::this_thread::sleep_for(200ms);
  }
}

}  // namespace stdchk::tools
