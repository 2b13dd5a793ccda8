#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "benefactor/memory/arena.h"
#include "benefactor/memory/machine.h"
#include "benefactor/memory/memory_watch.h"
#include "benefactor/service/leaver.h"
#include "benefactor/service/metrics.h"
#include "benefactor/service/service.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "core/crypto/secret.h"
#include "core/files/pool_files.h"
#include "core/runtime/confinement.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "metrics/daemon.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::benefactor {
namespace {

using transport::secure::Role;

struct Flags {
  std::string manager;
  std::string secret_file;
  std::string ready_file;
  std::uint64_t memory = 0;
  std::uint64_t log_memory = 0;
  std::uint64_t log_memory_max = 0;
  std::string backing = "anonymous";
  std::string disk;
  std::string listen = "127.0.0.1";
  std::string transport = "auto";
  bool trusted_network = false;
  std::uint32_t leave_seconds = 30;
  bool pressure = true;
  PressureLimits pressure_limits;
  std::uint32_t oom_score = 800;
  std::string kernel_files = "/";
  bool unconfined = false;
  metrics::Flags metrics;
  log::Level log_level = log::Level::kInfo;
};

std::optional<int> parse(Flags& flags, int argc, char** argv) {
  Options options("stdchk-benefactor", "Lends memory or disk of this host to a stdchk pool.");
  options
      .text("--manager", flags.manager, "ADDRESS",
            "address of the pool's manager, and of its standby behind a comma")
      .required();
  options
      .text("--secret-file", flags.secret_file, "FILE",
            "file that holds this member's key, or the pool's secret")
      .required();
  options
      .text("--ready-file", flags.ready_file, "FILE",
            "write this file when the memory is lent: the amounts, as JSON")
      .required();
  options.size("--memory", flags.memory, limits::kMiB, std::uint64_t{1} << 60, "memory to lend")
      .required();
  options.size("--log-memory", flags.log_memory, 0, std::uint64_t{1} << 40,
               "part of --memory for metadata, from which a lost manager is rebuilt; 0: 1/128");
  options.size("--log-memory-max", flags.log_memory_max, 0, std::uint64_t{1} << 40,
               "limit of the metadata's growth beside --memory; 0: half of --memory, at least 16 "
               "MiB; with --log-memory that value");
  options.text("--backing", flags.backing, "KIND",
               "kind of lent memory: anonymous, memfd, hugetlb, or a directory on a ramdisk");
  options.text("--disk", flags.disk, "DIR", "lend disk space in DIR instead of memory");
  options.text("--listen", flags.listen, "HOST[,HOST...]",
               "addresses of this host for clients; each is a rail");
  options.choice("--transport", flags.transport, transport::choices(),
                 "clients reach the memory by this transport", transport::former_choices());
  options.flag("--trusted-network", flags.trusted_network,
               "send the content of images over TCP in clear, with a tag against changes");
  options.count("--leave-time", flags.leave_seconds, 0, 3600,
                "seconds after SIGTERM to hand over chunks that no other benefactor has");
  options.on_off("--pressure", flags.pressure,
                 "leave when this host, or a control group, runs short of memory");
  options.size(
      "--pressure-reserve", flags.pressure_limits.reserve_bytes, 0, std::uint64_t{1} << 50,
      "memory that must stay available to other programs; 0: 1/32 of the machine's, at most 2 GiB");
  options.count("--pressure-stall", flags.pressure_limits.stall_percent, 1, 100,
                "percent of time in which tasks wait for memory that counts as short memory");
  options.count("--oom-score", flags.oom_score, 0, 1000,
                "oom_score_adj: the kernel ends a process with a higher score first when memory is "
                "exhausted");
  options.text("--kernel-files", flags.kernel_files, "DIR",
               "folder with the host's proc and sys/fs/cgroup");
  options.flag("--unconfined", flags.unconfined, kUnconfinedHelp);
  metrics::describe(options, flags.metrics);
  options.log_level(flags.log_level);
  return options.parse_or_exit(argc, argv);
}

constexpr unsigned kEndSecondsMax = 5;

std::uint64_t log_bytes(const Flags& flags) {
  const std::uint64_t wanted =
      flags.log_memory > 0 ? flags.log_memory : flags.memory / limits::kLogShare;
  return std::min(wanted, flags.memory / 2);
}

std::uint64_t log_bytes_max(const Flags& flags) {
  if (flags.log_memory_max > 0) return std::max(flags.log_memory_max, log_bytes(flags));
  if (flags.log_memory > 0) return log_bytes(flags);
  return std::max(flags.memory / limits::kLogGrowthShare, limits::kLogGrowthBytesMin);
}

MachineFiles machine_files(const Flags& flags) {
  return {flags.kernel_files + "/proc", flags.kernel_files + "/sys/fs/cgroup"};
}

/// Folder that the benefactors of one pool on this host share.
std::string drain_turn_file(const Flags& flags) {
  const auto slash = flags.ready_file.rfind('/');
  return slash == std::string::npos ? "." : flags.ready_file.substr(0, slash + 1);
}

Outcome<std::unique_ptr<Arena>> take_memory(const Flags& flags, const Clock& clock,
                                            const std::atomic<bool>& ending) {
  ArenaOptions options;
  options.bytes = flags.memory - log_bytes(flags);
  options.cancelled = &ending;
  options.pins_memory = flags.transport == "verbs";
  options.files = machine_files(flags);
  if (flags.pressure) options.pressure = flags.pressure_limits;
  if (!flags.disk.empty()) {
    options.backing = Backing::kDisk;
    options.directory = flags.disk;
    if (::mkdir(flags.disk.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error = errno;
      return problem(
          Code::kSystem, "benefactor.disk", error,
          fmt::format("The directory {} cannot be made: {}.", flags.disk, std::strerror(error)));
    }
  } else if (flags.backing == "memfd") {
    options.backing = Backing::kMemfd;
  } else if (flags.backing == "hugetlb") {
    options.backing = Backing::kHugetlb;
  } else if (flags.backing != "anonymous") {
    options.backing = Backing::kRamdisk;
    options.directory = flags.backing;
  }
  return Arena::create(options, clock);
}

Config make_config(const Flags& flags, std::shared_ptr<transport::secure::Keyring> keyring) {
  Config config;
  config.manager_address = flags.manager;
  config.keyring = std::move(keyring);
  config.host_token = transport::host_token();
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  config.host_name = name;
  config.pid = ::getpid();
  config.log_bytes = log_bytes(flags);
  config.log_bytes_max = log_bytes_max(flags);
  config.log_may_grow = [files = machine_files(flags)](std::uint64_t more_bytes) {
    const auto there = check_memory(more_bytes, files);
    if (!there) log::warning("the metadata log cannot grow: {}", there.error().text);
    return there.has_value();
  };
  std::uint64_t random = 0;
  fill_random(std::as_writable_bytes(std::span(&random, 1)));
  config.life = {random, config.keyring->mark(random)};
  return config;
}

std::string ready_text(const Arena& arena, const Service& service, std::uint64_t log_bytes) {
  const ArenaFacts facts = arena.facts();
  nlohmann::json ready{{"pid", ::getpid()},
                       {"benefactor", service.id().value},
                       {"addresses", service.addresses()},
                       {"backing", facts.backing},
                       {"arena_bytes", facts.bytes},
                       {"log_bytes", log_bytes},
                       {"resident_bytes", facts.resident_bytes},
                       {"huge_page_bytes", facts.huge_bytes},
                       {"advice", facts.advice}};
  return ready.dump() + "\n";
}

void log_facts(const Arena& arena) {
  const ArenaFacts facts = arena.facts();
  log::info("lends {} ({}), {} of it on huge pages; taken in {} ms by {} threads",
            format_bytes(facts.bytes), facts.backing, format_bytes(facts.huge_bytes),
            std::chrono::duration_cast<std::chrono::milliseconds>(facts.prefault_time).count(),
            facts.threads);
  if (!facts.advice.empty()) log::warning("{}", facts.advice);
}

auto open_endpoints(const Flags& flags, Clock& clock,
                    const std::shared_ptr<transport::secure::Keyring>& keyring,
                    std::uint64_t arena_bytes) {
  return transport::open_endpoints(flags.transport, flags.manager,
                                   {.clock = &clock,
                                    .listen_host = flags.listen,
                                    .identity = keyring,
                                    .trusted_network = flags.trusted_network,
                                    .serves = true,
                                    .pinned_bytes = arena_bytes});
}

/// Takes the memory as a process that the kernel ends before others. Reverts that if other
/// processes could not use the memory.
Outcome<std::unique_ptr<Arena>> allocate_arena_as_oom_victim(const Flags& flags, const Clock& clock,
                                                             const std::atomic<bool>& ending) {
  const auto before = raise_oom_score(static_cast<int>(flags.oom_score));
  auto arena = take_memory(flags, clock, ending);
  if (before && arena && !(*arena)->facts().is_common_memory) restore_oom_score(*before);
  return arena;
}

/// Returns null when the watch is off, or the end of this process would free no memory for others.
std::unique_ptr<MemoryWatch> watch_memory(const Flags& flags, Reactor& reactor, const Arena& arena,
                                          Leaver& leaver) {
  if (!flags.pressure) return nullptr;
  if (!arena.facts().is_common_memory) {
    log::info("memory pressure is not watched: {} is of no use to others", arena.facts().backing);
    return nullptr;
  }
  return std::make_unique<MemoryWatch>(reactor, flags.pressure_limits, machine_files(flags),
                                       [&leaver](Pressure pressure, const std::string& why) {
                                         return leaver.on_pressure(pressure, why);
                                       });
}

int run(const Flags& flags) {
  // Lustre's `lfs` lays out drained files.
  if (const Status confined = flags.unconfined ? Status() : confine({.programs = true});
      !confined) {
    return fail_with(describe(confined.error()));
  }
  SystemClock clock;
  Reactor reactor(clock);
  const std::atomic<bool>& ending = end_on_signals(reactor);
  // A drain that hangs in dead storage must not keep the process alive: its file has no name yet.
  std::signal(SIGALRM, [](int) { ::_exit(EXIT_SUCCESS); });
  const auto keyring = transport::secure::read_keyring(flags.secret_file, Role::kBenefactor);
  if (!keyring) return fail_with(keyring.error().text);
  LeaveTurn turn(drain_turn_file(flags));  // given back after the memory
  std::unique_ptr<Service> service;
  auto served =
      metrics::serve(flags.metrics, metrics::page_of("stdchk-benefactor", reactor, [&](auto& to) {
                       if (service) collect(*service, to);
                     }));
  if (!served) return fail_with(served.error().text);
  auto arena = allocate_arena_as_oom_victim(flags, clock, ending);
  if (!arena) return ending ? EXIT_SUCCESS : fail_with(arena.error().text);
  log_facts(**arena);
  auto endpoints = open_endpoints(flags, clock, *keyring, (*arena)->bytes().size());
  if (!endpoints) return fail_with(describe(endpoints.error()));

  int status = EXIT_SUCCESS;
  bool ready = false;
  Config config = make_config(flags, *keyring);
  config.on_refused = [&](const std::string& why) {
    const int refused =
        fail_with(fmt::format("the manager at {} refused us: {}", flags.manager, why));
    if (ready) return;  // the right manager may need the data stored here
    status = refused;
    reactor.stop();
  };
  config.on_registered = [&](const msg::RegisterBenefactor::Reply&) {
    if (ready) return;
    const Status written =
        write_file_at_once(flags.ready_file, ready_text(**arena, *service, log_bytes(flags)));
    if (!written) {
      status = fail_with(
          fmt::format("{} cannot be written: {}", flags.ready_file, describe(written.error())));
      reactor.stop();
    }
    ready = true;
  };
  std::vector<transport::Endpoint*> data;
  for (const auto& endpoint : endpoints->data) data.push_back(endpoint.get());
  for (transport::Endpoint* endpoint : data) reactor.add(*endpoint);
  if (endpoints->control_only) reactor.add(*endpoints->control_only);
  service =
      std::make_unique<Service>(reactor, std::move(config), **arena, *endpoints->control, data);
  if (const Status started = service->start(); !started) {
    return fail_with(describe(started.error()));
  }
  Leaver leaver(reactor, *service, std::chrono::seconds(flags.leave_seconds), turn);
  auto watch = watch_memory(flags, reactor, **arena, leaver);
  reactor.run();
  if (ready && (ended_by() == SIGTERM || leaver.must_leave())) leaver.hand_over();
  if (leaver.must_leave() && !ready) status = EXIT_FAILURE;
  watch.reset();
  log::info("ends");
  ::alarm(kEndSecondsMax);
  served->reset();
  service.reset();
  for (transport::Endpoint* endpoint : data) reactor.remove(*endpoint);
  if (endpoints->control_only) reactor.remove(*endpoints->control_only);
  return status;
}

}  // namespace
}  // namespace stdchk::benefactor

int main(int argc, char** argv) {
  stdchk::benefactor::Flags flags;
  if (const auto status = stdchk::benefactor::parse(flags, argc, argv)) return *status;
  stdchk::let_crashes_end_the_process();
  stdchk::log::start("stdchk-benefactor", flags.log_level);
  return stdchk::benefactor::run(flags);
}
