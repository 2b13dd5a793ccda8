// stdchk-vm: runs virtual machines that can be cloned while they run. `stdchk vm` is the same
// program.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/files/own_folder.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "fork/process/family_network.h"
#include "fork/ticket/available_memory.h"
#include "fork/ticket/cluster.h"
#include "fork/vm/control.h"
#include "fork/vm/domain.h"
#include "fork/vm/family.h"

namespace stdchk::fork::vm {
namespace {

constexpr std::size_t kAnswerBytesMax = std::size_t{1} << 20;
constexpr int kAnswerSecondsMax = 300;

struct RunOptions {
  std::string name;
  std::vector<std::string> command;
  std::string domain;
  std::string folder;
  std::uint32_t slots = 0;
  std::uint64_t memory = 0;
  std::uint64_t clone_memory = std::uint64_t{64} << 20;
  bool foreground = false;
  bool free_pages = false;
  std::string hosts;
  RemoteParts remote;
  std::optional<Subnet> subnet;
  std::uint64_t ticket = 0;  ///< another host's ticket for this machine, if it is a clone
  std::uint32_t count = 0;   ///< number of clones of the ticket; 0: the machine is no clone
};
struct StartOptions {
  RunOptions run;
  std::string image;
  std::uint32_t id = 1;
  std::string pager;
  std::string pool_path;
  std::string bound;
};
struct NameOptions {
  std::string name;
  std::string folder;
  std::string image;
  std::uint32_t count = 1;
  bool json = false;
};

constexpr FolderRules kBaseRules{.what = "the folder of the machines"};

int complain(const std::string& text) {
  fmt::print(stderr, "stdchk-vm: {}\n", text);
  return 2;
}

std::string base_folder(const std::string& given) {
  if (!given.empty()) return given;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    return std::string(runtime) + "/stdchk-vm";
  }
  return fmt::format("/tmp/stdchk-vm-{}", ::getuid());
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 40 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(c) || c == '-' || c == '_';
  });
}

/// Says a line to the host whose clone this process runs.
void say(const std::string& line) {
  const std::string text = line + "\n";
  (void)!::write(1, text.data(), text.size());
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

/// The library for QEMU's memory: beside this program in a build, in the library folder otherwise.
std::string preload_library() {
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& folder :
       {own, own.parent_path() / "lib", own.parent_path() / "lib/x86_64-linux-gnu"}) {
    if (std::filesystem::exists(folder / "libstdchk-vm-memory.so", error))
      return folder / "libstdchk-vm-memory.so";
  }
  return "libstdchk-vm-memory.so";
}

/// Environment of QEMU that loads this library.
std::vector<std::string> memory_library(std::uint64_t memory_bytes) {
  return {"LD_PRELOAD=" + preload_library(), fmt::format("STDCHK_VM_BYTES={}", memory_bytes)};
}

/// Serves the family until its first machine ends. `begin` starts that machine. `tell`: where the
/// outcome is written: a sentence, or nothing when the machine runs.
using Begin = std::function<Outcome<void>(Family&)>;
int serve(const RunOptions& run, const QemuCommand& command, const std::string& folder,
          const Begin& begin, int tell) {
  SystemClock clock;
  Reactor reactor(clock);
  end_on_signals(reactor);
  Watches watches;
  reactor.add(watches);
  int status = EXIT_SUCCESS;
  auto cluster =
      cluster_of(run.hosts, {"", run.slots, run.memory != 0 ? run.memory : available_bytes()},
                 run.clone_memory, run.remote.shell);
  HostTable hosts(cluster ? cluster->hosts : std::vector<Host>());
  RemoteParts remote = run.remote;
  if (cluster) remote.shell = cluster->shell;
  {
    const auto on_end = [&](End end, int code, const std::string& value) {
      if (run.count != 0) {
        say(fmt::format("ended {} {} {}", static_cast<std::uint32_t>(end), code,
                        value.empty() ? "-" : value));
      }
      reactor.stop();
    };
    Family family(reactor, watches, command,
                  {run.name, folder, &hosts, run.clone_memory, remote, on_end, run.ticket,
                   run.count, run.subnet, memory_library(command.memory_bytes())});
    Control control(watches, family);
    auto started = cluster ? begin(family) : problem(cluster.error());
    if (started) started = control.listen(folder + "/control");
    const std::string said = started ? "" : started.error().text;
    (void)!::write(tell, said.data(), said.size());
    if (run.count != 0) {
      say(started ? "running" : "failed " + one_line(said));
      // The other host holds the pipe open as long as it wants the clone.
      watches.add(0, [&reactor] {
        char ignored[64];
        if (::read(0, ignored, sizeof(ignored)) <= 0) reactor.stop();
      });
    }
    ::close(tell);
    if (started)
      reactor.run();
    else
      status = EXIT_FAILURE;
  }
  reactor.remove(watches);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return status;
}

/// In a new session, so that the machine goes on when the terminal closes.
[[noreturn]] void serve_detached(const RunOptions& run, const QemuCommand& command,
                                 const std::string& folder, const Begin& begin, int tell) {
  ::setsid();
  const int log =
      ::open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(nothing, 0);
  ::dup2(nothing, 1);
  ::dup2(log >= 0 ? log : nothing, 2);
  ::_exit(serve(run, command, folder, begin, tell));
}

std::string check_remote(const RunOptions& run) {
  const RemoteParts& remote = run.remote;
  if (run.hosts.empty() != remote.image.folder.empty())
    return "--hosts needs --images, and --images needs --hosts.";
  if (!remote.image.folder.empty() && remote.image.folder[0] != '/')
    return "--images needs an absolute path.";
  if (remote.image.pager.empty() != remote.image.pool_path.empty())
    return "--clone-pager and --images-pool-path go together.";
  return {};
}

int run_machine(RunOptions run, const Outcome<QemuCommand>& command, const Begin& begin) {
  if (!is_name(run.name))
    return complain("A name has letters, digits, \"-\" and \"_\", at most 40.");
  if (!command) return complain(command.error().text);
  if (const std::string wrong = check_remote(run); !wrong.empty()) return complain(wrong);
  if (!run.remote.network.empty()) {
    const auto subnet = parse_subnet(run.remote.network);
    if (!subnet) return complain("--network: " + subnet.error().text);
    run.subnet = *subnet;
  }
  const auto base = OwnFolder::make(base_folder(run.folder), kBaseRules);
  if (!base) return complain(base.error().text);
  if (!run.remote.image.folder.empty()) {
    const auto images =
        OwnFolder::make(run.remote.image.folder, {.what = "--images", .is_private = false});
    if (!images) return complain(images.error().text);
  }
  const std::string folder = base->path() + "/" + run.name;
  if (connect_unix(folder + "/control") >= 0)
    return complain(fmt::format("The machine {} runs already.", run.name));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);  // a killed machine has left it
  if (::mkdir(folder.c_str(), 0700) != 0)
    return complain(fmt::format("{}: {}", folder, std::strerror(errno)));
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) return complain("no pipe");
  if (run.foreground) {
    ::close(pipe[0]);
    return serve(run, *command, folder, begin, pipe[1]);
  }
  const pid_t pid = ::fork();
  if (pid < 0) return complain("the process cannot be forked");
  if (pid == 0) serve_detached(run, *command, folder, begin, pipe[1]);
  ::close(pipe[1]);
  std::string said;
  char bytes[1024];
  for (ssize_t n = 0; (n = ::read(pipe[0], bytes, sizeof(bytes))) > 0;)
    said.append(bytes, static_cast<std::size_t>(n));
  if (!said.empty()) return complain(fmt::format("the machine was not started: {}", said));
  if (::access((folder + "/control").c_str(), F_OK) != 0)
    return complain("the machine was not started");
  return 0;
}

int run_new(RunOptions run) {
  if (!run.domain.empty()) {
    if (!run.command.empty()) return complain("--domain and a command line exclude each other.");
    auto words = command_of_domain(run.domain);
    if (!words) return complain(words.error().text);
    run.command = std::move(*words);
  }
  auto command = QemuCommand::parse(run.command);
  if (command && run.free_pages) command->add_balloon();
  return run_machine(run, command, [](Family& family) { return family.start(); });
}

/// Reads "TICKET:COUNT".
bool parse_bound(const std::string& text, RunOptions& run) {
  std::istringstream in(text);
  char colon = 0;
  run.foreground = true;
  return (in >> run.ticket >> colon >> run.count) && colon == ':' && run.count > 0 &&
         run.count <= 250;
}

int run_start(StartOptions start) {
  if (!start.bound.empty() && !parse_bound(start.bound, start.run))
    return complain("--bound needs TICKET:COUNT.");
  auto image = SavedMachine::read(start.image);
  if (!image) return complain(image.error().text);
  if (image->has_network && start.run.remote.network.empty())
    return complain("The image's machine has a network: give --network.");
  if (!image->has_network && !start.run.remote.network.empty())
    return complain("The image's machine has no network: --network cannot give it one.");
  std::vector<std::string> environment;
  if (!start.pager.empty()) {
    if (start.pool_path.empty())
      return complain("--pager needs --pool-path, the image's folder as the pool names it.");
    environment = memory_library(image->memory_bytes);
    environment.push_back("STDCHK_PAGER=" + start.pager);
    environment.push_back("STDCHK_VM_IMAGE=" + start.pool_path + "/memory");
  }
  return run_machine(start.run, QemuCommand::parse(image->words), [&](Family& family) {
    auto started = family.start_from(*image, start.id, environment);
    // Without disks nothing is read from the image any more, and its file system can be unmounted.
    if (image->disks == 0) image = problem(std::string());
    return started;
  });
}

/// Asks the process of the family that `name` belongs to. Clones are named FAMILY.TICKET.ID.
Outcome<nlohmann::json> ask(const NameOptions& options, const nlohmann::json& question) {
  const std::string family = options.name.substr(0, options.name.find('.'));
  if (!is_name(family))
    return problem(fmt::format("\"{}\" is no name of a machine.", options.name));
  // The environment may name another user's folder, and /tmp/stdchk-vm-UID may be another user's.
  const auto base = OwnFolder::open(base_folder(options.folder), kBaseRules);
  if (!base) return problem(fmt::format("There is no machine {}: {}", family, base.error().text));
  const Descriptor socket(connect_unix(base->path() + "/" + family + "/control"));
  if (!socket) return problem(fmt::format("There is no machine {}.", family));
  const timeval longest{kAnswerSecondsMax, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
  const std::string text = question.dump() + "\n";
  (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
  std::string said;
  char bytes[4096];
  ssize_t n = 0;
  while (said.size() < kAnswerBytesMax && (n = ::recv(socket.get(), bytes, sizeof(bytes), 0)) > 0) {
    said.append(bytes, static_cast<std::size_t>(n));
    if (said.back() == '\n') break;
  }
  auto answer = nlohmann::json::parse(said, nullptr, false);
  if (!answer.is_object()) return problem("The machine's process does not answer.");
  if (answer.contains("error")) return problem(answer.value("error", ""));
  return answer;
}

int run_fork(const NameOptions& options) {
  const auto answer =
      ask(options, {{"do", "fork"}, {"name", options.name}, {"count", options.count}});
  if (!answer) return complain(answer.error().text);
  if (options.json) {
    fmt::print("{}\n", answer->dump());
    return 0;
  }
  for (const auto& name : answer->at("clones")) fmt::print("{}\n", name.get<std::string>());
  return 0;
}

int run_save(const NameOptions& options) {
  std::error_code error;
  const auto folder = std::filesystem::absolute(options.image, error).lexically_normal();
  const auto own = OwnFolder::make(folder, kImageRules);
  if (!own) return complain(own.error().text);
  const auto answer =
      ask(options, {{"do", "save"}, {"name", options.name}, {"folder", folder.string()}});
  if (!answer) return complain(answer.error().text);
  if (options.json) fmt::print("{}\n", answer->dump());
  return 0;
}

int run_kill(const NameOptions& options) {
  const auto answer = ask(options, {{"do", "kill"}, {"name", options.name}});
  return answer ? 0 : complain(answer.error().text);
}

int run_list(const NameOptions& options) {
  nlohmann::json all = nlohmann::json::array();
  const auto base = OwnFolder::open(base_folder(options.folder), kBaseRules);
  for (const std::string& name : base ? base->names() : std::vector<std::string>()) {
    NameOptions one = options;
    one.name = name;
    if (const auto answer = ask(one, {{"do", "list"}})) {
      for (const auto& machine : answer->at("machines")) all.push_back(machine);
    }
  }
  if (options.json) {
    fmt::print("{}\n", all.dump());
    return 0;
  }
  for (const auto& machine : all) {
    const std::string address = machine.value("address", "");
    fmt::print("{}  id {}  pid {}  memory {}{}\n", machine.value("name", ""),
               machine.value("id", 0), machine.value("pid", 0),
               format_bytes(machine.value("memory_bytes", std::uint64_t{0})),
               address.empty() ? "" : "  address " + address);
  }
  return 0;
}

void describe_family(Options& options, RunOptions& run) {
  options.text("--folder", run.folder, "DIR", "folder of all machines of this user");
  options.count("--slots", run.slots, 0, 100'000,
                "clones that run at the same time; 0: the number of processors");
  options.size("--memory", run.memory, 0, std::uint64_t{1} << 60,
               "memory for all clones; 0: what is available now");
  options.size("--clone-memory", run.clone_memory, 0, std::uint64_t{1} << 60,
               "memory to reserve for each clone's changes; inherited pages are shared");
  options.flag("--foreground", run.foreground, "do not return before the machine ends");
  options.text("--hosts", run.hosts, "FILE",
               "with --images: other hosts for clones, one a line: NAME [slots=N] [memory=SIZE]. "
               "The words slurm and pbs mean the hosts of this job");
  options.text("--rsh", run.remote.shell, "COMMAND",
               "reach the hosts by COMMAND HOST PROGRAM; default: ssh, srun or pbs_tmrsh");
  options.text("--remote-program", run.remote.program, "PROGRAM",
               "this program on the other hosts");
  options.text(
      "--images", run.remote.image.folder, "FOLDER",
      "write the images of machines with clones on other hosts to this folder of a pool, which "
      "all hosts see under this name");
  options.text("--clone-pager", run.remote.image.pager, "SOCKET",
               "with --images: the socket of stdchk-pager on the other hosts, which fetches pages");
  options.text("--images-pool-path", run.remote.image.pool_path, "PATH",
               "with --clone-pager: path of FOLDER from the pool's root");
  options.text("--network", run.remote.network, "SUBNET",
               "give the family a network, with 256 addresses out of this IPv4 range, such as "
               "10.90.0.0/16; root only");
}

void describe(Options& options, StartOptions& start) {
  options.argument("IMAGE", start.image, "folder that `save` has written").required();
  options.argument("NAME", start.run.name, "name of the machine").required();
  options.count("--id", start.id, 0, 250,
                "number of this clone, which replaces {id} in the command line");
  options.text(
      "--pager", start.pager, "SOCKET",
      "fetch the memory page by page from stdchk-pager; without it all memory is read first");
  options.text("--pool-path", start.pool_path, "PATH",
               "path of IMAGE from the pool's root, for --pager");
  options
      .text("--bound", start.bound, "TICKET:COUNT",
            "start a clone of a ticket of another host, whose stdchk-vm starts this program; the "
            "machine ends with standard input")
      .command_line_only();
  describe_family(options, start.run);
}

void describe(Options& options, RunOptions& run) {
  options.argument("NAME", run.name, "name of the machine").required();
  options.arguments("COMMAND", run.command,
                    "QEMU's command line, after \"--\"; the clone's id replaces {id}");
  options.text("--domain", run.domain, "DOMAIN",
               "take the command line from this domain of libvirt, by virsh: a name, or a file "
               "*.xml. Devices that clones cannot share are left out");
  options.flag("--free-pages", run.free_pages,
               "add a balloon device by which the guest gives up its free memory: clones do not "
               "fetch it. A balloon device of COMMAND is used for it without this option");
  describe_family(options, run);
}

void describe(Options& options, NameOptions& name, bool needs_name, bool forks) {
  if (needs_name) options.argument("NAME", name.name, "name of the machine").required();
  options.text("--folder", name.folder, "DIR", "folder of all machines of this user");
  if (forks) options.count("--count,-n", name.count, 1, 250, "number of clones to make");
  if (forks || !needs_name) options.flag("--json", name.json, "print JSON").command_line_only();
}

int run(int argc, char** argv) {
  Options options("stdchk-vm", "Runs virtual machines that can be cloned while they run.");
  RunOptions run;
  StartOptions start;
  NameOptions fork, save, kill, list;
  describe(options.subcommand("run", "Starts a machine from a command line of QEMU."), run);
  describe(options.subcommand("fork", "Clones a running machine."), fork, true, true);
  auto& saves = options.subcommand(
      "save", "Writes a running machine's image into a folder, such as one of a pool.");
  describe(saves, save, true, false);
  saves.argument("IMAGE", save.image, "new folder for the image").required();
  saves.flag("--json", save.json, "print JSON").command_line_only();
  describe(options.subcommand("start", "Starts a clone from an image, on any host."), start);
  describe(options.subcommand("kill", "Ends a machine and its clones."), kill, true, false);
  describe(options.subcommand("list", "Lists machines and clones."), list, false, false);
  if (const auto status = options.parse_or_exit(argc, argv)) return *status;
  // STDCHK_NETWORK=none is for stdchk-forkd, too.
  for (RunOptions* each : {&run, &start.run}) {
    if (each->remote.network == "none") each->remote.network.clear();
  }
  log::start("stdchk-vm", log::Level::kInfo);
  if (options.chosen() == "run") return run_new(run);
  if (options.chosen() == "save") return run_save(save);
  if (options.chosen() == "start") return run_start(start);
  if (options.chosen() == "fork") return run_fork(fork);
  if (options.chosen() == "kill") return run_kill(kill);
  return run_list(list);
}

}  // namespace
}  // namespace stdchk::fork::vm

int main(int argc, char** argv) { return stdchk::fork::vm::run(argc, argv); }
