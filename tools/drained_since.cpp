#include "tools/drained_since.h"

#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <optional>

namespace stdchk::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "%Y-%m-%d %H:%M:%S %z";

std::optional<std::time_t> time_of(const std::string& text) {
  std::tm told{};
  const char* const end = ::strptime(text.c_str(), kFormat, &told);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const long offset = told.tm_gmtoff;
  return ::timegm(&told) - offset;
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

std::uint64_t drained_since(const std::string& folder, const ImageName& set,
                            const std::string& when) {
  const auto since = time_of(when);
  if (!since) return 0;
  std::uint64_t count = 0;
  std::error_code code;
  for (const auto& file : fs::directory_iterator(folder, code)) {
    const auto image = parse_image_name(file.path().filename().string());
    if (!image || image->application != set.application || image->timestep != set.timestep) {
      continue;
    }
    // The drain gives a file its image's time; that of its last change is when it came here.
    struct stat status {};
    if (::stat(file.path().c_str(), &status) == 0 && status.st_ctime > *since) ++count;
  }
  return count;
}

}  // namespace stdchk::tools
