#include "container/job/control.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/support/catch.h"

namespace stdchk::container {
namespace {

constexpr uid_t kOtherUser = 65534;

/// A control socket in a folder that everybody may enter.
struct World {
  World() {
    REQUIRE(::mkdtemp(folder.data()) != nullptr);
    REQUIRE(::chmod(folder.c_str(), 0755) == 0);
    path = folder + "/control";
    auto made = Control::listen(path, [this](const std::string& request, Control::Answer answer) {
      requests.push_back(request);
      answer("heard");
    });
    REQUIRE(made);
    control = std::move(*made);
  }
  ~World() { std::filesystem::remove_all(folder); }
  int connected() const {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size());
    const bool good =
        ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    if (!good) ::close(socket);
    return good ? socket : -1;
  }
  void turn() const {
    for (int i = 0; i < 4; ++i) control->poll();
  }

  std::string folder = "/tmp/stdchk-control-XXXXXX";
  std::string path;
  std::vector<std::string> requests;
  std::unique_ptr<Control> control;
};

/// Sends a request from a process of that user. Returns 0 for an answer, 1 for an ended connection,
/// 2 for a connection that was refused.
int status_of_visit(const World& world, uid_t user) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (user != ::geteuid() && ::setresuid(user, user, user) != 0) ::_exit(3);
    const int socket = world.connected();
    if (socket < 0) ::_exit(2);
    (void)!::send(socket, "jobs\n", 5, MSG_NOSIGNAL);
    char answer[64];
    ::_exit(::read(socket, answer, sizeof(answer)) > 0 ? 0 : 1);
  }
  int status = 0;
  while (::waitpid(child, &status, WNOHANG) == 0) world.turn();
  return WEXITSTATUS(status);
}

TEST_CASE("another user is refused, also where the socket's mode lets it in") {
  const World world;
  struct stat facts {};
  REQUIRE(::stat(world.path.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  CHECK(status_of_visit(world, ::geteuid()) == 0);
  CHECK(world.requests == std::vector<std::string>{"jobs"});
  if (::geteuid() != 0) {
    WARN("only root can become another user");
    return;
  }
  CHECK(status_of_visit(world, kOtherUser) == 2);
  REQUIRE(::chmod(world.path.c_str(), 0666) == 0);
  CHECK(status_of_visit(world, kOtherUser) == 1);
  CHECK(world.requests.size() == 1);
}

TEST_CASE("a request that does not end, and a second one, end the connection") {
  const World world;
  const int endless = world.connected();
  REQUIRE(endless >= 0);
  world.turn();
  const std::string part(3000, 'x');
  for (int i = 0; i < 2; ++i) {
    (void)!::send(endless, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    world.turn();
  }
  CHECK(world.requests.empty());
  CHECK(::send(endless, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
  ::close(endless);
}

}  // namespace
}  // namespace stdchk::container
