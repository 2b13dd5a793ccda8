// stdchk-fork-init: the first process of a clone's namespaces. stdchk-forkd starts it:
//
//   stdchk-fork-init CONTROL FOLDER SOCKETS SOCKETS_INSIDE HOST_NAME [PARENT_FOLDER...]
//
// It makes the namespaces, mounts the clone's view of the file system below FOLDER, sets up the
// network, and then reaps processes. When the daemon closes CONTROL, it ends, and the kernel ends
// all processes of the namespaces.
#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "fork/process/sandbox_protocol.h"
#include "fork/process/view_plan.h"

namespace stdchk::fork {
namespace {

struct Arguments {
  int control = -1;
  std::string folder;
  std::string sockets;
  std::string sockets_inside;  ///< where the clone sees `sockets`
  std::string host_name;
  std::vector<std::string>
      parents;  ///< folders of the sandboxes around this sandbox, from the inside
};

[[noreturn]] void give_up(int control, const std::string& what) {
  SandboxWord word;
  word.step = SandboxStep::kFailed;
  word.error = errno;
  std::snprintf(word.text, sizeof(word.text), "%s: %s", what.c_str(), std::strerror(errno));
  (void)::send(control, &word, sizeof(word), MSG_NOSIGNAL);
  ::_exit(1);
}

void say(int control, SandboxStep step) {
  SandboxWord word;
  word.step = step;
  if (::send(control, &word, sizeof(word), MSG_NOSIGNAL) != ssize_t{sizeof(word)}) ::_exit(1);
}

std::string text_of(const char* path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool is_folder(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && S_ISDIR(s.st_mode);
}

/// Mounts the host's `path` at `to` so that changes go to the clone's own folder. The changes of
/// the sandboxes around this sandbox lie between these layers.
bool mount_overlay(const Arguments& a, const std::string& path, const std::string& to) {
  const std::string name = folder_of(path);
  const std::string upper = a.folder + "/upper/" + name, work = a.folder + "/work/" + name;
  struct stat host {};
  if (::stat(path.c_str(), &host) != 0) return false;
  if (::mkdir(upper.c_str(), host.st_mode & 07777) != 0 || ::mkdir(work.c_str(), 0700) != 0)
    return false;
  // The top folder of the view has the mode and owner of `upper`, whatever the process's umask is.
  if (::chmod(upper.c_str(), host.st_mode & 07777) != 0 ||
      ::chown(upper.c_str(), host.st_uid, host.st_gid) != 0) {
    return false;
  }
  std::string lower;
  for (const std::string& parent : a.parents) {
    const std::string above = parent + "/upper/" + name;
    if (is_folder(above)) lower += overlay_word(above) + ":";
  }
  lower += overlay_word(path);
  const std::string options =
      "lowerdir=" + lower + ",upperdir=" + overlay_word(upper) + ",workdir=" + overlay_word(work);
  return ::mount("stdchk-fork", to.c_str(), "overlay", 0, options.c_str()) == 0;
}

bool show(const Arguments& a, const ViewMount& mount, const std::string& to) {
  const auto bind = [&] {
    return ::mount(mount.path.c_str(), to.c_str(), nullptr, MS_BIND, nullptr) == 0;
  };
  switch (mount.showing) {
    case Showing::kOverlay:
      return (is_folder(mount.path) && mount_overlay(a, mount.path, to)) || bind();
    case Showing::kShared:
      return bind();
    case Showing::kProc:
      return ::mount("proc", to.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
    case Showing::kQueue:
      return ::mount("mqueue", to.c_str(), "mqueue", 0, nullptr) == 0;
    case Showing::kMemory:
      return ::mount("shm", to.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") == 0;
  }
  return false;
}

/// A mount of the host that this process may not see (FUSE of another user) is absent in the view.
void mount_view(const Arguments& a) {
  const std::string root = a.folder + "/root";
  const auto fatal = [&](const std::string& what) { give_up(a.control, what); };
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    fatal("mounts made private");
  for (const char* name : {"/root", "/upper", "/work"}) {
    if (::mkdir((a.folder + name).c_str(), 0755) != 0) fatal(a.folder + name);
  }
  const auto plan = plan_view(text_of("/proc/self/mountinfo"), STDCHK_FORK_STATE);
  if (plan.empty() || plan[0].path != "/") {
    errno = EINVAL;
    fatal("/proc/self/mountinfo");
  }
  for (const ViewMount& mount : plan) {
    const bool shown = show(a, mount, mount.path == "/" ? root : root + mount.path);
    if (!shown && (mount.path == "/" || mount.showing == Showing::kProc))
      fatal("mount of " + mount.path);
  }
  // Unix sockets do not work through an overlay.
  const std::string sockets = root + a.sockets_inside;
  std::error_code ignored;  // the mount says what is wrong
  std::filesystem::create_directories(sockets, ignored);
  if (::mount(a.sockets.c_str(), sockets.c_str(), nullptr, MS_BIND, nullptr) != 0) fatal(sockets);
  if (::chdir(root.c_str()) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0) {
    fatal("new root");
  }
}

void set_up_interface(int control, const char* name, const SandboxWord& word) {
  const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
  const auto set = [&](unsigned long call, std::uint32_t value) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(value);
    std::memcpy(&request.ifr_addr, &address, sizeof(address));
    if (::ioctl(s, call, &request) != 0) give_up(control, "address");
  };
  if (word.address != 0) {
    set(SIOCSIFADDR, word.address);
    set(SIOCSIFNETMASK, word.netmask);
  }
  if (::ioctl(s, SIOCGIFFLAGS, &request) != 0) give_up(control, name);
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  if (::ioctl(s, SIOCSIFFLAGS, &request) != 0) give_up(control, name);
  ::close(s);
}

void add_default_route(int control, std::uint32_t gateway) {
  rtentry route{};
  const auto set = [](sockaddr& out, std::uint32_t value) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(value);
    std::memcpy(&out, &address, sizeof(address));
  };
  set(route.rt_dst, 0);
  set(route.rt_genmask, 0);
  set(route.rt_gateway, gateway);
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (::ioctl(s, SIOCADDRT, &route) != 0) give_up(control, "route");
  ::close(s);
}

/// Waits for the word that says which address this clone has.
void set_up_network(int control) {
  SandboxWord word;
  if (::recv(control, &word, sizeof(word), 0) != ssize_t{sizeof(word)}) ::_exit(1);
  set_up_interface(control, "lo", SandboxWord());
  if (word.address == 0) return;
  set_up_interface(control, "eth0", word);
  if (word.gateway != 0) add_default_route(control, word.gateway);
}

[[noreturn]] void reap(int control) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child, nullptr);
  const int signals = ::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  pollfd watched[2] = {{control, POLLIN, 0}, {signals, POLLIN, 0}};
  for (;;) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) ::_exit(1);
    if ((watched[0].revents & (POLLHUP | POLLERR)) != 0) ::_exit(0);
    signalfd_siginfo info;
    while (::read(signals, &info, sizeof(info)) > 0) {
    }
  }
}

int run(const Arguments& a) {
  ::prctl(PR_SET_NAME, "stdchk-fork-ini");
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET) != 0) {
    give_up(a.control, "namespaces");
  }
  const pid_t first = ::fork();
  if (first < 0) give_up(a.control, "first process");
  if (first > 0) return 0;
  ::setsid();
  say(a.control,
      SandboxStep::kHere);  // the daemon learns this process's pid from the message's credentials
  if (::sethostname(a.host_name.data(), a.host_name.size()) != 0) give_up(a.control, "host name");
  mount_view(a);
  set_up_network(a.control);
  say(a.control, SandboxStep::kReady);
  reap(a.control);
}

}  // namespace
}  // namespace stdchk::fork

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "stdchk-fork-init is started by stdchk-forkd only.\n");
    return 2;
  }
  stdchk::fork::Arguments a{std::atoi(argv[1]), argv[2], argv[3], argv[4], argv[5], {}};
  for (int i = 6; i < argc; i++) a.parents.emplace_back(argv[i]);
  return stdchk::fork::run(a);
}
