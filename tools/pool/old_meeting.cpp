#include "tools/pool/old_meeting.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tools/pool/meeting.h"

namespace stdchk::tools {
namespace {

/// The site's scripts leave "ends". Words that are being written begin with ".new-".
bool is_file_of_meeting(const std::string& name) {
  return name == "address" || name == "key" || name == "ends" || name.starts_with("ready.") ||
         name.starts_with("failed.") || name.starts_with(".new-") || name.ends_with(".keys");
}

}  // namespace

Outcome<void> remove_meeting(const std::string& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) return {};
  const auto own = OwnFolder::open(folder, kExchangeRules);
  if (!own) return problem("{}", own.error().text);
  for (const std::string& name : own->names()) {
    if (is_file_of_meeting(name)) (void)own->remove(name);
  }
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return {};
  return problem("{} is no exchange folder: it has other files ({}); remove or rename it", folder,
                 std::strerror(errno));
}

}  // namespace stdchk::tools
