#include "fork/vm/overlay.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/descriptor.h"
#include "core/base/exec_words.h"

namespace stdchk::fork::vm {

Outcome<std::string> qemu_img(std::vector<std::string> words) {
  words.insert(words.begin(), "qemu-img");
  const std::vector<char*> argv = exec_words(words);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return problem("qemu-img: no pipe");
  const Descriptor reading(pipe[0]);
  Descriptor writing(pipe[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], 2);
  pid_t pid = -1;
  const int error = ::posix_spawnp(&pid, "qemu-img", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return problem(fmt::format("qemu-img cannot be started: {}", std::strerror(error)));
  writing = Descriptor();
  std::string said;
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(pipe[0], bytes, sizeof(bytes))) > 0;)
    said.append(bytes, static_cast<std::size_t>(n));
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) return problem("qemu-img failed: " + said);
  return said;
}

Outcome<void> make_overlay(const std::string& base, const std::string& overlay) {
  std::error_code error;
  const std::string path = std::filesystem::absolute(base, error).string();
  auto info = qemu_img({"info", "--force-share", "--output=json", path});
  if (!info) return problem(info.error());
  const auto facts = nlohmann::json::parse(*info, nullptr, false);
  if (!facts.is_object() || !facts.contains("virtual-size") || !facts.contains("format")) {
    return problem(fmt::format("qemu-img does not know the image {}", base));
  }
  auto made = qemu_img({"create", "-q", "-f", "qcow2", "-u", "-b", path, "-F",
                        facts["format"].get<std::string>(), overlay,
                        std::to_string(facts["virtual-size"].get<std::uint64_t>())});
  if (!made) return problem(made.error());
  return {};
}

}  // namespace stdchk::fork::vm
