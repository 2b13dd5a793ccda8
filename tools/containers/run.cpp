#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "container/job/control.h"
#include "container/job/coordinator.h"
#include "core/base/units.h"
#include "core/files/own_folder.h"
#include "core/runtime/reactor.h"
#include "tools/base/connection.h"
#include "tools/base/exit_status.h"
#include "tools/base/hosts.h"
#include "tools/base/process.h"
#include "tools/containers/base_system.h"
#include "tools/containers/box_plan.h"
#include "tools/containers/commands.h"
#include "tools/containers/job_record.h"
#include "tools/containers/own_pool.h"
#include "tools/containers/pace.h"
#include "tools/containers/set_search.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::tools {
namespace {

using container::Coordinator;
using container::CoordinatorSettings;
using Json = nlohmann::json;
using transport::secure::Role;

constexpr int kSignalled = 128;

std::int64_t in_ms(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

/// Images of processes lie there, from which root makes processes: no other user may change them.
constexpr FolderRules kSetRules{.what = "the folder of the job's sets", .is_private = false};

/// Makes the folder of the job's sets, and says how many members a set has.
Outcome<void> make_set_folder(const PoolRecord& pool, const RunOptions& options,
                              const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return problem("{}: {}", folder, std::strerror(errno));
  }
  const auto own = OwnFolder::open(folder, kSetRules);
  if (!own) return problem("{}", own.error().text);
  auto located = locate(pool.directory, folder);
  if (!located) return problem(located.error());
  const auto policy =
      parse_policy(fmt::format("keep=2 {} images={}", options.policy, options.ranks + 2));
  if (!policy) return problem("--policy: {}", policy.error().text);
  const auto done = located->filesystem->set_policy(located->attributes.id, *policy);
  if (!done) return problem("{}: {}", folder, done.error().text);
  return {};
}

/// A Run is one call of `stdchk run`: the coordinator, its socket, and signals.
class Run {
 public:
  Run(const RunOptions& options, const std::string& folder, const Pace& pace)
      : options_(options), folder_(folder), pace_(pace) {}

  Outcome<int> run_job(const PoolRecord& pool, CoordinatorSettings settings);

 private:
  void on_control(const std::string& request, container::Control::Answer answer);
  Json status() const;
  void end_by_signal();
  std::optional<Duration> until_next(const container::CheckpointFigures* newest);

  const RunOptions& options_;
  const std::string folder_;
  Reactor* reactor_ = nullptr;
  Coordinator* coordinator_ = nullptr;
  Pace pace_;
  bool is_saving_to_end_ = false;
};

/// Waits for a slow reader, whose pipe may be without blocking.
void print_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;
    if (n > 0) at += static_cast<std::size_t>(n);
  }
}

container::CoordinatorEvents events() {
  container::CoordinatorEvents events;
  events.output = [](bool errors, const std::string& text) {
    print_all(errors ? STDERR_FILENO : STDOUT_FILENO, text);
  };
  events.say = tell;
  events.taken = [](const container::CheckpointFigures& taken) {
    std::string steps;
    for (const auto& [step, took] : taken.steps) steps += fmt::format(" {} {}", step, in_ms(took));
    tell(fmt::format(
        "set T{} is complete after {} ms; the job stood still for {} ms, {} of images (ms:{})",
        taken.set, in_ms(taken.complete), in_ms(taken.pause), format_bytes(taken.image_bytes),
        steps));
  };
  return events;
}

Json Run::status() const {
  const container::Job& job = coordinator_->job();
  std::map<container::NodeId, Json> boxes;
  for (const container::NodeId node : job.alive()) boxes[node] = Json::array();
  for (const auto& [box, node] : job.placement()) boxes[node].push_back(box);
  Json nodes = Json::array();
  for (const auto& [node, list] : boxes) {
    nodes.push_back({{"host", coordinator_->host_of(node)},
                     {"alive", job.alive().count(node) > 0},
                     {"boxes", list}});
  }
  Json figures = Json::array();
  for (const auto& taken : coordinator_->figures()) {
    Json steps = Json::object();
    for (const auto& [step, took] : taken.steps) steps[step] = in_ms(took);
    figures.push_back({{"set", taken.set},
                       {"pause_ms", in_ms(taken.pause)},
                       {"complete_ms", in_ms(taken.complete)},
                       {"image_bytes", taken.image_bytes},
                       {"steps_ms", steps}});
  }
  return {{"job", options_.name},       {"state", job.phase()},  {"set", job.newest()},
          {"restarts", job.restarts()}, {"nodes", nodes},        {"folder", folder_},
          {"pid", ::getpid()},          {"checkpoints", figures}};
}

void Run::on_control(const std::string& text, container::Control::Answer answer) {
  const Json request = Json::parse(text, nullptr, false);
  const std::string what = request.is_object() ? request.value("do", "") : "";
  const auto done = [this, answer](const Outcome<void>& saved) {
    answer(saved ? Json{{"set", coordinator_->job().newest()}}.dump()
                 : Json{{"error", saved.error().text}}.dump());
  };
  if (what == "status") return answer(status().dump());
  if (what == "checkpoint") return coordinator_->want_checkpoint(done);
  if (what == "evacuate") return coordinator_->want_evacuation(request.value("node", ""), done);
  answer(Json{{"error", "the request is not known"}}.dump());
}

/// SIGTERM, as batch systems send it before they take the nodes away, and SIGHUP, the end of a
/// session: saves, then ends. SIGINT, or a second SIGTERM, ends at once. A session's end may send
/// several SIGHUPs and one SIGTERM.
void Run::end_by_signal() {
  const EndSignals came = end_signals();
  if (came.count() == 0) return;
  const auto status = static_cast<std::uint32_t>(kSignalled + came.first);
  if (came.interrupts > 0 || came.terms > 1) {
    return coordinator_->want_end(status, "interrupted");
  }
  if (std::exchange(is_saving_to_end_, true)) return;
  const std::string name = came.first == SIGHUP ? "SIGHUP" : "SIGTERM";
  tell(name + ": the job is saved, then ended");
  coordinator_->want_checkpoint([this, status, name](const Outcome<void>& saved) {
    coordinator_->want_end(
        status, saved ? "saved, and ended by " + name
                      : fmt::format("ended by {} and not saved: {}", name, saved.error().text));
  });
}

std::optional<Duration> Run::until_next(const container::CheckpointFigures* newest) {
  if (!pace_.advised()) return pace_.every();
  if (newest == nullptr) return pace_.every();
  const Duration next = pace_.after(newest->pause, newest->complete);
  if (newest->set == 1 || coordinator_->figures().size() == 1) {
    tell(fmt::format("--advise: a set costs {} ms, so the next set begins after {} s",
                     in_ms(newest->pause), in_ms(next) / 1000));
  }
  return next;
}

/// The reactor of this process. From the first call on, signals that ask this process to end only
/// stop the reactor.
Reactor& signalled_reactor() {
  static SystemClock clock;
  static Reactor reactor(clock);
  stop_on_end_signals(reactor);
  std::signal(SIGPIPE, SIG_IGN);
  return reactor;
}

Outcome<int> Run::run_job(const PoolRecord& pool, CoordinatorSettings settings) {
  Reactor& reactor = signalled_reactor();
  reactor_ = &reactor;
  auto root = transport::secure::read_root_keyring(
      pool.secret_file(), transport::secure::new_member(Role::kCoordinator));
  if (!root) return problem(root.error());
  auto endpoint = transport::open_endpoint("tcp", {.clock = &reactor.clock(), .identity = *root});
  if (!endpoint) return failed("the network", endpoint.error());
  reactor.add(**endpoint);
  int status = kExitError;
  {
    settings.interval = [this](const auto* newest) { return until_next(newest); };
    Coordinator coordinator(reactor, **endpoint, *root, std::move(settings), events());
    coordinator_ = &coordinator;
    auto started = coordinator.start_nodes([&](const transport::secure::Member& member) {
      return transport::secure::key_file_text((*root)->key_of(member));
    });
    if (!started) return problem(started.error());
    auto control = container::Control::listen(
        control_path(options_.name),
        [this](const std::string& request, auto answer) { on_control(request, answer); });
    if (!control) return problem(control.error());
    reactor.add(**control);
    coordinator.begin();
    while (!coordinator.status()) {
      reactor.run();
      if (coordinator.status()) break;
      reactor.resume();
      end_by_signal();
    }
    reactor.remove(**control);
    if (!coordinator.reason().empty()) tell(coordinator.reason());
    status = static_cast<int>(*coordinator.status());
  }
  reactor.remove(**endpoint);
  return status;
}

Outcome<CoordinatorSettings> make_settings(RunOptions& options, const std::string& named,
                                           const std::string& invoked_as) {
  // Nodes refuse a link in place of the folder.
  const std::string folder = options.from.empty() ? named : absolute_path_of_link(named);
  CoordinatorSettings settings;
  settings.folder = folder;
  settings.spares = options.hosts.spares;
  settings.limits.restarts_max = options.retries;
  settings.limits.lease = std::chrono::seconds(options.lease_s);
  settings.lazy = options.lazy;
  settings.silent_max = settings.limits.lease / 2;
  if (!options.from.empty()) {
    const auto own = OwnFolder::open(folder, kSetRules);
    if (!own) return problem("{}", own.error().text);
    auto found = find_set(folder, options.name, options.set);
    if (!found) return problem(found.error());
    options.program = found->set.program;
    options.ranks = static_cast<std::uint32_t>(found->set.boxes.size()) - 1;
    settings.boxes = found->set.boxes;
    settings.from = std::move(found->set);
    settings.last = found->last;
  } else {
    auto base = read_base_system(options.root);
    if (!base) return problem(base.error());
    settings.boxes = plan_boxes(options, *base);
  }
  settings.job = options.name;
  settings.program = options.program;
  auto nodes = plan_nodes(options, folder, invoked_as);
  if (!nodes) return problem(nodes.error());
  settings.nodes = std::move(*nodes);
  settings.network_number = new_network_number();
  if (!options.from.empty() && !settings.nodes.empty()) {
    // A restart may have fewer nodes than the job had.
    settings.spares =
        std::min(settings.spares, static_cast<std::uint32_t>(settings.nodes.size() - 1));
  }
  if (settings.spares >= settings.nodes.size()) {
    return problem("{} spare nodes leave none of {} for the job", settings.spares,
                   settings.nodes.size());
  }
  return settings;
}

/// The folder of the job's sets in this pool.
std::string set_folder(const RunOptions& options, const PoolRecord& pool) {
  return options.from.empty() ? pool.mount + "/" + options.name : options.from;
}

Outcome<int> run_in_pool(const PoolRecord& pool, RunOptions& options,
                         const std::string& invoked_as) {
  const std::string folder = set_folder(options, pool);
  forget_old_jobs();
  auto settings = make_settings(options, folder, invoked_as);
  if (!settings) return problem(settings.error());
  auto pace = Pace::of(options.pace, settings->nodes.size() - settings->spares);
  if (!pace) return problem(pace.error());
  if (auto made = make_set_folder(pool, options, folder); !made) return problem(made.error());
  // A restart that is refused does not change how the job was started.
  if (auto saved = save_job(options, folder); !saved) return problem(saved.error());
  tell(fmt::format("job {}, {} ranks on {} nodes, sets in {}", options.name, options.ranks,
                   settings->nodes.size(), folder));
  if (options.ranks > 1) {
    tell(
        "MPI is told to use TCP: shared memory between containers and other devices cannot be "
        "saved");
  }
  return Run(options, folder, *pace).run_job(pool, std::move(*settings));
}

/// Runs the job in its own pool, unless a signal came while the pool was brought up.
Outcome<int> run_in(const PoolRecord& pool, RunOptions& options, const std::string& invoked_as) {
  auto folder = folder_in_pool(options.from, options.own_pool.mount, pool.mount);
  if (!folder) return problem(folder.error());
  options.from = std::move(*folder);
  options.own_pool = identity_of(pool);
  if (const int signal = end_signals().first; signal != 0) return kSignalled + signal;
  return run_in_pool(pool, options, invoked_as);
}

Outcome<int> run_in_own_pool(RunOptions& options, const std::string& invoked_as) {
  if (!options.pool.empty() && !is_chosen_by_environment(options.pool)) {
    return problem("--up and --pool exclude each other: --up brings up a pool of the job's own");
  }
  options.pool.clear();
  (void)signalled_reactor();  // from here on a signal does not leave the pool behind
  const auto own = OwnPool::bring_up(options.up, options.own_pool, invoked_as);
  if (!own) return problem(own.error());
  const PoolRecord& pool = own->record();
  const auto status = run_in(pool, options, invoked_as);
  if (!status) tell(status.error().text);
  const std::string folder = set_folder(options, pool);
  const JobEnd end{status.value_or(kExitError),
                   is_below(folder, pool.mount) && may_have_set(folder, options.name, pool.mount)};
  const bool is_done = own->take_down(end);
  if (end.status != kExitGood) return end.status;
  // The record of the job stays: its sets may be in memory only.
  if (!is_done) return kExitError;
  forget_job(options.name);
  return kExitGood;
}

Outcome<int> run_or_restart(RunOptions& options, const std::string& invoked_as) {
  if (options.name.empty()) options.name = new_job_name();
  if (!is_job_name(options.name)) {
    return problem("--name {}: a job's name has letters, digits and \"-\", at most 40",
                   options.name);
  }
  if (options.from.empty() && options.program.empty()) {
    return problem("no program: stdchk run -n 4 -- mpiexec -n 4 ./program");
  }
  if (!options.up.empty()) return run_in_own_pool(options, invoked_as);
  const auto pool = find_pool(options.pool, options.from);
  if (!pool) return problem(pool.error());
  options.pool = pool->directory;
  auto status = run_in_pool(*pool, options, invoked_as);
  // Nothing is left to restart. After every other end the record says how.
  if (status && *status == kExitGood) forget_job(options.name);
  return status;
}

}  // namespace

int run_job(RunOptions& options, const std::string& invoked_as) {
  auto status = run_or_restart(options, invoked_as);
  if (!status) return complain(status.error().text);
  return *status;
}

}  // namespace stdchk::tools
