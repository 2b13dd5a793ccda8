#include "tools/drained/drained_since.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <time.h>

#include <cctype>
#include <ctime>
#include <optional>
#include <utility>
#include <vector>

#include "core/files/drain_directory.h"
#include "core/objects/object_place.h"
#include "tools/drained/drained_objects.h"

namespace stdchk::tools {
namespace {

constexpr const char* kSeconds = "%Y-%m-%d %H:%M:%S";
constexpr long kNsOfSecond = 1'000'000'000;

/// Seconds since 1970, and nanoseconds of the second.
using Moment = std::pair<std::time_t, long>;

/// A text without a fraction means the end of its second.
std::optional<Moment> time_of(const std::string& text) {
  std::tm parsed{};
  const char* rest = ::strptime(text.c_str(), kSeconds, &parsed);
  if (rest == nullptr) return std::nullopt;
  long fraction_ns = kNsOfSecond - 1;
  if (*rest == '.') {
    fraction_ns = 0;
    for (long digit_ns = kNsOfSecond / 10; std::isdigit(*++rest) != 0; digit_ns /= 10) {
      fraction_ns += (*rest - '0') * digit_ns;
    }
  }
  std::tm zone{};
  const char* const end = ::strptime(rest, " %z", &zone);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return Moment(::timegm(&parsed) - zone.tm_gmtoff, fraction_ns);
}

}  // namespace

std::string text_of_now() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::tm local{};
  ::localtime_r(&now.tv_sec, &local);
  char seconds[32];
  std::strftime(seconds, sizeof(seconds), kSeconds, &local);
  char zone[8];
  std::strftime(zone, sizeof(zone), "%z", &local);
  return fmt::format("{}.{:09} {}", seconds, now.tv_nsec, zone);
}

std::uint64_t drained_since(const std::string& drain, const std::string& folder,
                            const ImageName& set, const std::string& when) {
  const auto since = time_of(when);
  if (!since) return 0;
  // Object stores tell the second of a change.
  if (is_object_store(drain)) return drained_objects_since(drain, folder, set, since->first);
  std::uint64_t count = 0;
  const auto root = DrainDirectory(drain).open();
  const auto there = root ? root->folder(folder) : Outcome<DrainFolder>(tl::unexpect, root.error());
  const auto names =
      there ? there->names() : Outcome<std::vector<std::string>>(tl::unexpect, there.error());
  if (!names) return 0;
  for (const std::string& name : *names) {
    const auto image = parse_image_name(name);
    if (!image || image->application != set.application || image->timestep != set.timestep) {
      continue;
    }
    // The drain sets a file's modification time to the image's, so the change time tells when it
    // arrived.
    const auto status = there->status(name);
    if (status && S_ISREG(status->st_mode) &&
        Moment(status->st_ctim.tv_sec, status->st_ctim.tv_nsec) > *since)
      ++count;
  }
  return count;
}

}  // namespace stdchk::tools
