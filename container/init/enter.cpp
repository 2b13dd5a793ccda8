// Makes the namespaces of a container, mounts the file systems that a Linux program expects, and
// becomes process 1.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "container/init/modes.h"

namespace stdchk::container {
namespace {

struct Device {
  const char* name;
  unsigned major, minor;
};
// Linux: Documentation/admin-guide/devices.txt.
constexpr Device kDevices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                               {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
constexpr unsigned long kSafe = MS_NOSUID | MS_NODEV | MS_NOEXEC;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

void mount_at(const char* kind, const char* where, unsigned long flags, const char* data) {
  ::mkdir(where, 0755);
  if (::mount(kind, where, kind, flags, data) != 0) give_up(where);
}

void make_devices() {
  mount_at("tmpfs", "dev", MS_NOSUID, "mode=755,size=64k,nr_inodes=256");
  for (const Device& device : kDevices) {
    const std::string path = std::string("dev/") + device.name;
    if (::mknod(path.c_str(), S_IFCHR | 0666, makedev(device.major, device.minor)) != 0) {
      give_up(path.c_str());
    }
    ::chmod(path.c_str(), 0666);
  }
  mount_at("devpts", "dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620");
  mount_at("tmpfs", "dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
  if (::symlink("pts/ptmx", "dev/ptmx") != 0 || ::symlink("/proc/self/fd", "dev/fd") != 0 ||
      ::symlink("/proc/self/fd/0", "dev/stdin") != 0 ||
      ::symlink("/proc/self/fd/1", "dev/stdout") != 0 ||
      ::symlink("/proc/self/fd/2", "dev/stderr") != 0) {
    give_up("dev");
  }
}

/// `root` is a mount point. Makes that file system the only visible one, as "/".
void enter_root(const char* root) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) give_up("private mounts");
  if (::chdir(root) != 0) give_up(root);
  mount_at("proc", "proc", kSafe, nullptr);
  mount_at("sysfs", "sys", kSafe, nullptr);
  make_devices();
  ::mkdir("tmp", 01777);
  ::chmod("tmp", 01777);
  // pivot_root(2), "pivot_root(".", ".")": the old root lies over the new one, and is taken away.
  if (::syscall(SYS_pivot_root, ".", ".") != 0) give_up("pivot_root");
  if (::umount2(".", MNT_DETACH) != 0) give_up("the old root");
  if (::chdir("/") != 0) give_up("/");
}

void join(const char* net_namespace) {
  const int fd = ::open(net_namespace, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) give_up(net_namespace);
  ::close(fd);
}

/// Reports a failure to `failed`. Only a successful exec closes `failed`: until the exec this process
/// maps a program of the host, so CRIU cannot save it.
void become_init(const char* root, const char* host_name, int failed) {
  enter_root(root);
  if (::sethostname(host_name, std::strlen(host_name)) != 0) give_up("host name");
  ::setsid();
  const int null = ::open("/dev/null", O_RDWR);
  const int out = ::open("/.stdchk/init.log", O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (null < 0 || out < 0) give_up("/.stdchk/init.log");
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  ::umask(022);
  const char* const words[] = {"init", nullptr};
  const char* const environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  ::execve("/.stdchk/init", const_cast<char**>(words), const_cast<char**>(environment));
  ::dprintf(failed, "/.stdchk/init: %s\n", std::strerror(errno));
}

}  // namespace

/// enter ROOT NET-NAMESPACE HOST-NAME: prints the process id of process 1.
int run_enter(int argc, char** argv) {
  if (argc != 4) return kUsage;
  join(argv[2]);
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS) != 0) {
    give_up("unshare");
  }
  int failed[2];  // closed by a successful exec
  if (::pipe2(failed, O_CLOEXEC) != 0) give_up("pipe");
  const pid_t child = ::fork();
  if (child < 0) give_up("fork");
  if (child == 0) {
    ::dup2(failed[1], 2);
    become_init(argv[1], argv[3], failed[1]);
    ::_exit(1);
  }
  ::close(failed[1]);
  char why[256];
  const ssize_t said = ::read(failed[0], why, sizeof why);
  if (said > 0) {
    std::fprintf(stderr, "%.*s", static_cast<int>(said), why);
    return 1;
  }
  std::printf("%d\n", static_cast<int>(child));
  return 0;
}

}  // namespace stdchk::container
