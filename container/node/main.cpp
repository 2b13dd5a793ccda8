#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "container/node/node.h"
#include "container/node/sweeper.h"
#include "core/base/log.h"
#include "core/files/own_folder.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::container {
namespace {

struct Flags {
  std::string secret_file;
  std::string listen = "127.0.0.1";
  std::string work;
  std::string criu = "criu";
  std::string init;
  std::string tag;
  log::Level log_level = log::Level::kInfo;
};

std::optional<int> parse(Flags& flags, int argc, char** argv) {
  Options options("stdchk-container",
                  "Runs containers of a job on this host, saves and restarts them.");
  options
      .text("--secret-file", flags.secret_file, "FILE",
            "file that holds this node's key (stdchk member-key --role node), or the pool's secret")
      .required();
  options
      .text("--work", flags.work, "DIR",
            "where containers keep their changes and images; a new file system in memory is "
            "mounted there, seen by this daemon only")
      .required();
  options.text("--init", flags.init, "PROGRAM", "the program stdchk-box-init").required();
  options
      .text("--tag", flags.tag, "NAME",
            "at most 6 letters and digits in the names of devices, different for each node of a "
            "host")
      .required();
  options.text("--listen", flags.listen, "HOST", "address that the coordinator reaches");
  options.text("--criu", flags.criu, "PROGRAM", "the program that saves processes");
  options.log_level(flags.log_level);
  return options.parse_or_exit(argc, argv);
}

int fail_errno(const std::string& what) { return fail_with(errno_text(what)); }

/// Containers' programs come from the work directory, so no other user may change it or the folders
/// above.
Outcome<OwnFolder> make_work_folder(const std::string& work) {
  constexpr FolderRules kRules{.what = "--work"};
  if (!work.starts_with('/')) return problem("--work " + work + " is not an absolute path");
  auto made = OwnFolder::make(work, kRules);
  // The sweeper of an earlier daemon of the job may remove the empty folder above in between.
  return made ? std::move(made) : OwnFolder::make(work, kRules);
}

/// A work directory and names of network namespaces that no other process sees, and that end with
/// this process.
int make_own_mounts(const Flags& flags) {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0) {
    return fail_errno("mounts of its own");
  }
  if (::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
    return fail_errno("/proc");
  }
  ::mkdir("/run/netns", 0755);
  for (const char* const where : {"/run/netns", flags.work.c_str()}) {
    if (::mount("tmpfs", where, "tmpfs", MS_NOSUID, "mode=700") != 0) return fail_errno(where);
  }
  return EXIT_SUCCESS;
}

int serve(const Flags& flags, const Sweeper& sweeper) {
  SystemClock clock;
  Reactor reactor(clock);
  end_on_signals(reactor);
  auto keyring = transport::secure::read_keyring(flags.secret_file, transport::secure::Role::kNode);
  if (!keyring) return fail_with(keyring.error().text);
  if (const int failed = make_own_mounts(flags); failed != EXIT_SUCCESS) return failed;
  auto endpoint = transport::open_endpoint(
      "tcp", {.clock = &clock, .listen_host = flags.listen, .identity = *keyring, .serves = true});
  if (!endpoint) return fail_with(describe(endpoint.error()));
  BoxSettings settings{flags.work, flags.init, flags.tag, Criu(flags.criu)};
  Node node(
      reactor, std::move(settings), [&] { reactor.stop(); },
      [&](const NetworkDescription& network) { sweeper.will_need(network); });
  if (const Status listens = (*endpoint)->listen(node); !listens) {
    return fail_with(describe(listens.error()));
  }
  reactor.add(**endpoint);
  fmt::print("ready {}\n", (*endpoint)->address());
  std::fflush(stdout);
  reactor.run();
  log::info("ends");
  node.end();
  reactor.remove(**endpoint);
  // The end of process 1 ends its threads, and every container.
  ::_exit(EXIT_SUCCESS);
}

/// The node is process 1 of a process namespace: nothing that it has started outlives it.
int run(const Flags& flags) {
  if (::geteuid() != 0) {
    return fail_with(
        "containers need root on this host, for namespaces, mounts and CRIU; "
        "docs/guide/containers.md says how a site installs that");
  }
  if (const auto own = make_work_folder(flags.work); !own) return fail_with(own.error().text);
  auto sweeper = Sweeper::start(flags.tag, flags.work);
  if (!sweeper) return fail_with(sweeper.error().text);
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return fail_errno("namespaces of its own");
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::exit(serve(flags, *sweeper));
  }
  static pid_t served;
  served = child;
  for (const int signal : {SIGTERM, SIGINT}) {
    std::signal(signal, [](int number) { ::kill(served, number); });
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  sweeper->finish();
  return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}

}  // namespace
}  // namespace stdchk::container

int main(int argc, char** argv) {
  stdchk::container::Flags flags;
  if (const auto status = stdchk::container::parse(flags, argc, argv)) return *status;
  stdchk::let_crashes_end_the_process();
  stdchk::log::start("stdchk-container", flags.log_level);
  return stdchk::container::run(flags);
}
