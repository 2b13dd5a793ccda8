#include "fork/pager/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/files/own_folder.h"

namespace stdchk::pager {
namespace {

constexpr int kBacklog = 128;

bool has_address(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return false;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return true;
}

Descriptor new_socket() { return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

}  // namespace

std::string default_socket() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  return folder == nullptr ? std::string() : std::string(folder) + "/stdchk-pager.socket";
}

Outcome<Descriptor> listen_at(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  sockaddr_un said;
  if (slash == std::string::npos || path.front() != '/' || slash + 1 == path.size() ||
      !has_address(path, said)) {
    return problem(fmt::format("--socket '{}' is not an absolute path of at most 107 bytes", path));
  }
  FolderRules rules;
  rules.what = "the socket's folder";
  rules.is_private = false;
  const auto folder = OwnFolder::open(slash == 0 ? "/" : path.substr(0, slash), rules);
  if (!folder) return problem(folder.error());
  // The checked folder's descriptor stands in the path, so that another user cannot replace the
  // folder.
  const std::string name = path.substr(slash + 1);
  sockaddr_un address;
  const Descriptor probe = new_socket();
  if (!has_address(fmt::format("/proc/self/fd/{}/{}", folder->fd(), name), address)) {
    return problem(fmt::format("the name of the socket {} is too long", path));
  }
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(probe.get(), to, sizeof(address)) == 0) {
    return problem(fmt::format("another stdchk-pager serves at {}", path));
  }
  if (errno == ECONNREFUSED) ::unlinkat(folder->fd(), name.c_str(), 0);
  Descriptor listening = new_socket();
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(listening.get(), to, sizeof(address)) == 0;
  const int error = errno;
  ::umask(before);
  if (!bound) return problem(fmt::format("{}: {}", path, std::strerror(error)));
  if (::listen(listening.get(), kBacklog) != 0) {
    return problem(fmt::format("{}: {}", path, std::strerror(errno)));
  }
  return listening;
}

}  // namespace stdchk::pager
