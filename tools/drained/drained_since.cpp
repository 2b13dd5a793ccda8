#include "tools/drained/drained_since.h"

#include <sys/stat.h>
#include <time.h>

#include <optional>
#include <vector>

#include "core/files/drain_directory.h"

namespace stdchk::tools {
namespace {

constexpr const char* kFormat = "%Y-%m-%d %H:%M:%S %z";

std::optional<std::time_t> time_of(const std::string& text) {
  std::tm parsed{};
  const char* const end = ::strptime(text.c_str(), kFormat, &parsed);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const long offset = parsed.tm_gmtoff;
  return ::timegm(&parsed) - offset;
}

}  // namespace

std::string text_of_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm local{};
  ::localtime_r(&now, &local);
  std::strftime(text, sizeof(text), kFormat, &local);
  return text;
}

std::uint64_t drained_since(const std::string& drain, const std::string& folder,
                            const ImageName& set, const std::string& when) {
  const auto since = time_of(when);
  if (!since) return 0;
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
    if (status && S_ISREG(status->st_mode) && status->st_ctime > *since) ++count;
  }
  return count;
}

}  // namespace stdchk::tools
