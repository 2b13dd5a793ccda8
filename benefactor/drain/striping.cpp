#include "benefactor/drain/striping.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>

#include "core/base/log.h"

extern char** environ;

namespace stdchk::benefactor {
namespace {

/// 1 target up to 256 MiB, 4 up to 4 GiB, 16 up to 64 GiB, then all targets.
constexpr std::array kLayout = {"lfs", "setstripe", "-E",  "256M", "-c", "1",  "-E",  "4G", "-c",
                                "4",   "-E",        "64G", "-c",   "16", "-E", "eof", "-c", "-1"};

}  // namespace

void stripe_by_size(const std::string& folder) {
  std::array<char*, kLayout.size() + 2> words{};
  for (std::size_t i = 0; i < kLayout.size(); ++i) words[i] = const_cast<char*>(kLayout[i]);
  words[kLayout.size()] = const_cast<char*>(folder.c_str());
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {0, 1, 2}) {
    posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_RDWR, 0);
  }
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, kLayout[0], &quiet, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (error != 0) return;
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    log::info("drained files are striped by their size: lfs has set a layout for {}", folder);
  } else {
    log::info("lfs sets no layout for {}; drained files get that of the drain directory", folder);
  }
}

}  // namespace stdchk::benefactor
