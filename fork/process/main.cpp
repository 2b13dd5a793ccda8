// stdchk-forkd is the daemon that clones processes of this host (docs/guide/fork.md).
#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/files/own_folder.h"
#include "core/files/pool_files.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "fork/process/image_file.h"
#include "fork/process/local_protocol.h"
#include "fork/process/nat.h"
#include "fork/process/sandbox_protocol.h"
#include "fork/process/server.h"
#include "fork/process/ticket_host.h"
#include "fork/ticket/available_memory.h"
#include "fork/ticket/cluster.h"
#include "fork/ticket/program.h"

namespace stdchk::fork {
namespace {

struct Flags {
  std::string socket = local::kSocketDefault;
  std::string ready_file;
  std::string network = "10.90.0.0/16";
  std::uint32_t slots = 0;
  std::uint64_t memory = 0;
  std::uint64_t clone_memory = std::uint64_t{256} << 20;
  std::uint64_t changes = 0;
  std::string hosts;
  std::string allocator;
  std::string remote_shell;
  std::string remote_program = "stdchk-forkd";
  std::string criu = "criu";
  ImageParts image;
  bool serve_ticket = false;
  bool nat = false;
  log::Level log_level = log::Level::kInfo;
};

std::optional<int> parse(Flags& flags, int argc, char** argv) {
  Options options("stdchk-forkd",
                  "Clones processes of this host: the daemon behind stdchk_fork.h.");
  options.text("--socket", flags.socket, "PATH", "socket at which programs reach this daemon");
  options.text("--ready-file", flags.ready_file, "FILE", "write this file when the daemon serves");
  options.text("--network", flags.network, "SUBNET",
               "IPv4 range of the clones, 256 addresses for each family; none: only the loopback");
  options.flag(
      "--nat", flags.nat,
      "let clones reach the outside under this host's addresses, by nft(8). This host then "
      "forwards packets of clones");
  options.count("--slots", flags.slots, 0, 100'000,
                "clones that run at the same time; 0: the number of processors");
  options.size("--memory", flags.memory, 0, std::uint64_t{1} << 60,
               "memory for all clones; 0: what is available when the daemon starts");
  options.size("--clone-memory", flags.clone_memory, 0, std::uint64_t{1} << 60,
               "memory to reserve for each clone's changes; inherited pages are shared");
  options.size("--changes", flags.changes, 0, std::uint64_t{1} << 60,
               "memory for files that clones change; 0: a quarter of the memory");
  options.text("--hosts", flags.hosts, "FILE",
               "other hosts for clones, one a line: NAME [slots=N] [memory=SIZE]. The words slurm "
               "and pbs mean the hosts of this daemon's job");
  options.text("--rsh", flags.remote_shell, "COMMAND",
               "reach the hosts by COMMAND HOST PROGRAM; default: ssh, srun or pbs_tmrsh");
  options.text("--allocator", flags.allocator, "PROGRAM",
               "a site's program that decides where clones go; docs/guide/fork.md has its calls");
  options.text("--remote-program", flags.remote_program, "PROGRAM",
               "this daemon's program on the other hosts");
  options.text("--criu", flags.criu, "PROGRAM",
               "CRIU, which dumps a process for other hosts and restores it there");
  options.text(
      "--images", flags.image.folder, "FOLDER",
      "write the memory of parents with clones on other hosts to this folder of a pool, which all "
      "hosts see under this name. Then the clones do not need the parent");
  options.text("--pager", flags.image.pager, "SOCKET",
               "with --images: the socket of stdchk-pager on the other hosts, which reads them");
  options.text("--pool-path", flags.image.pool_path, "PATH",
               "with --pager: path of FOLDER from the pool's root");
  options
      .flag("--serve-ticket", flags.serve_ticket,
            "serve clones of a ticket of another host, whose daemon starts this daemon")
      .command_line_only();
  options.log_level(flags.log_level);
  return options.parse_or_exit(argc, argv);
}

Outcome<void> check_image(const ImageParts& image) {
  constexpr std::size_t kPathMax = 300;  // the name of an image is appended
  if (image.folder.size() > kPathMax || image.pool_path.size() > kPathMax ||
      image.pager.size() > 107) {
    return problem("--images and --pool-path have at most 300 bytes, --pager 107.");
  }
  if (!image.folder.empty() && image.folder[0] != '/')
    return problem("--images needs an absolute path.");
  if (!image.pager.empty() && (image.folder.empty() || image.pool_path.empty())) {
    return problem("--pager needs --images and --pool-path.");
  }
  return {};
}

std::string path_beside_this_program(const char* name) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name;
}

/// Mounts the daemon's own folder, in a mount namespace of its own, so that it ends with the
/// daemon.
Outcome<void> mount_state(std::uint64_t bytes) {
  std::error_code error;
  std::filesystem::create_directories(STDCHK_FORK_STATE, error);
  const auto failed = [](const char* what) {
    return problem(fmt::format("{}: {}.", what, std::strerror(errno)));
  };
  if (error) {
    return problem(fmt::format("{} cannot be made: {}.", STDCHK_FORK_STATE, error.message()));
  }
  if (::unshare(CLONE_NEWNS) != 0)
    return failed("The mount namespace cannot be made; stdchk-forkd has to run as root");
  // New mounts of the host still appear here. The host does not see this process's mounts.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return failed("The mounts cannot be separated");
  const std::string options = fmt::format("mode=0700,size={}", bytes);
  if (::mount("stdchk-forkd", STDCHK_FORK_STATE, "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) !=
      0) {
    return failed("The folder of the clones' changes cannot be mounted");
  }
  return {};
}

/// Collects ended children every 500 ms. When a sandbox ends, its first process becomes a child of
/// this process.
void reap(Reactor& reactor) {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  reactor.schedule_after(std::chrono::milliseconds(500), [&reactor] { reap(reactor); });
}

/// Decides where clones go: the site's program, or the internal table of `hosts`.
std::unique_ptr<Allocator> allocator_of(const Flags& flags, std::vector<Host> hosts) {
  if (!flags.allocator.empty()) return std::make_unique<ProgramAllocator>(flags.allocator);
  return std::make_unique<HostTable>(std::move(hosts));
}

Outcome<void> choose_network(const Flags& flags, Server::Parts& parts) {
  if (flags.network == "none") {
    if (flags.nat) return problem("--nat needs --network.");
    return {};
  }
  const auto subnet = parse_subnet(flags.network);
  if (!subnet) return problem("--network: " + subnet.error().text);
  parts.subnet = *subnet;
  if (flags.nat) parts.reach = FamilyNetwork::Reach::kOutside;
  return {};
}

int run(Flags flags) {
  SystemClock clock;
  Reactor reactor(clock);
  end_on_signals(reactor);
  if (flags.serve_ticket) {
    flags.socket = STDCHK_FORK_STATE "/ticket/socket";  // gone with this process
    flags.network = "none";
    flags.nat = false;
  }
  Server::Parts parts;
  parts.socket = flags.socket;
  parts.init_program = path_beside_this_program("stdchk-fork-init");
  parts.clone_bytes = flags.clone_memory;
  parts.remote = {"", flags.remote_program, flags.criu, flags.image};
  if (flags.serve_ticket) parts.first_ticket = std::uint64_t{1} << 32;
  char name[65] = {};
  ::gethostname(name, sizeof(name) - 1);
  parts.host_name = name;
  if (const auto chosen = choose_network(flags, parts); !chosen) {
    return fail_with(chosen.error().text);
  }
  if (flags.socket.empty() || flags.socket[0] != '/' || flags.socket.rfind('/') == 0) {
    return fail_with("--socket has to be an absolute path in a folder of its own.");
  }
  if (const auto valid = check_image(flags.image); !valid) return fail_with(valid.error().text);
  // The pool may be mounted later, so the folder is looked at again when an image is written.
  std::error_code absent;
  if (!flags.image.folder.empty() && std::filesystem::exists(flags.image.folder, absent)) {
    const auto images = OwnFolder::open(flags.image.folder, kImagesRules);
    if (!images) return fail_with(images.error().text);
  }
  const std::uint64_t available = available_bytes();
  auto cluster =
      cluster_of(flags.hosts, {"", flags.slots, flags.memory != 0 ? flags.memory : available},
                 flags.clone_memory, flags.remote_shell);
  if (!cluster) return fail_with(cluster.error().text);
  parts.remote.remote_shell = cluster->shell;
  if (const auto mounted = mount_state(flags.changes != 0 ? flags.changes : available / 4);
      !mounted) {
    return fail_with(mounted.error().text);
  }
  const std::string folder = flags.socket.substr(0, flags.socket.rfind('/'));
  const auto own = OwnFolder::make(folder, {.what = "the socket's folder", .is_private = false});
  if (!own) return fail_with(own.error().text);
  const auto allocator = allocator_of(flags, std::move(cluster->hosts));
  const auto nat = flags.nat ? Nat::start(*parts.subnet) : Outcome<Nat>(Nat::none());
  if (!nat) return fail_with(nat.error().text);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Server server(reactor, *allocator, parts);
  if (const auto listens = server.listen(); !listens) return fail_with(listens.error().text);
  reap(reactor);
  log::info("serves at {}", flags.socket);
  if (!flags.ready_file.empty()) {
    const Status written = write_file_at_once(flags.ready_file, fmt::format("{}\n", ::getpid()));
    if (!written) return fail_with(describe(written.error()));
  }
  std::optional<TicketHost> host;
  if (flags.serve_ticket) {
    host.emplace(reactor, server.watches(), server, TicketHost::Parts{parts, flags.criu, folder});
    host->serve(Descriptor(::dup(0)), Descriptor(::dup(1)));
  }
  reactor.run();
  log::info("ends");
  host.reset();
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace stdchk::fork

int main(int argc, char** argv) {
  stdchk::fork::Flags flags;
  if (const auto status = stdchk::fork::parse(flags, argc, argv)) return *status;
  stdchk::let_crashes_end_the_process();
  stdchk::log::start("stdchk-forkd", flags.log_level);
  return stdchk::fork::run(flags);
}
