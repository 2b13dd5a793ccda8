#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/base/host_port.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/durable.h"
#include "core/files/pool_files.h"
#include "core/runtime/confinement.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "core/runtime/reactor.h"
#include "manager/journal/sqlite_journal.h"
#include "manager/recovery/rebuilder.h"
#include "manager/recovery/standby.h"
#include "manager/service/metrics.h"
#include "manager/service/service.h"
#include "metrics/daemon.h"
#include "transport/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::manager {
namespace {

using transport::secure::new_member;
using transport::secure::read_root_keyring;
using transport::secure::Role;

struct Flags {
  std::string state;
  std::string secret_file;
  std::string address_file;
  std::string listen = "127.0.0.1";
  std::string drain;
  std::uint64_t drain_rate = 0;
  std::uint64_t drain_total = 0;
  bool drain_yields = true;
  std::uint32_t chunk_size = limits::kChunkBytesDefault;
  std::uint32_t stripe_width = limits::kStripeWidthDefault;
  std::string naming = "auto";
  std::string policy;
  std::string chunking = "fixed";
  std::uint32_t copies = 0;
  std::string topology;
  std::uint64_t copy_rate = 0;
  std::uint64_t scrub_rate = limits::kScrubRateDefault;
  std::uint32_t gc_period = 600;
  bool rebuild = false;
  std::string standby;
  std::uint32_t takeover_after = 5;
  bool unconfined = false;
  metrics::Flags metrics;
  log::Level log_level = log::Level::kInfo;
};

std::optional<int> parse(Flags& flags, int argc, char** argv) {
  Options options("stdchk-manager", "Keeps the names, chunk maps and space of a stdchk pool.");
  options.text("--state", flags.state, "DIR", "keep the journal in this directory").required();
  options.text("--secret-file", flags.secret_file, "FILE", "file that holds the pool's secret")
      .required();
  options
      .text("--address-file", flags.address_file, "FILE",
            "write the manager's address into this file when it accepts links")
      .required();
  options.text("--listen", flags.listen, "HOST[:PORT]",
               "address at which others reach the manager");
  options.text("--drain", flags.drain, "DIR",
               "copy images to this directory of the parallel file system");
  options.rate("--drain-rate", flags.drain_rate,
               "limit of each benefactor's drain, bytes a second");
  options.rate("--drain-total", flags.drain_total,
               "limit of all benefactors' drain together, bytes a second");
  options.on_off("--drain-yields", flags.drain_yields,
                 "drain 8 MiB/s while somebody writes, unless memory fills up");
  options.chunk_size("--chunk-size", flags.chunk_size, "cut files into chunks of this size");
  options.count("--stripe-width", flags.stripe_width, 1, 1024,
                "spread a file over this number of benefactors");
  options.choice("--naming", flags.naming, {"auto", "on", "off"},
                 "name chunks by content and store equal chunks once; auto: where that pays");
  options.text("--policy", flags.policy, "SETTINGS",
               "policies of folders that set nothing themselves: KEY=VALUE,KEY=VALUE...");
  options.choice(
      "--chunking", flags.chunking, {"fixed", "content", "none"},
      "end chunks after a fixed length, or where their content says; none: fixed, without names");
  options.redundancy("--copies", flags.copies,
                     "copies of each chunk on different hosts, or parity ec(k,m); 0: as --policy "
                     "says, otherwise one copy");
  options.text("--topology", flags.topology, "FILE",
               "says which hosts fail together; a line is NAME [node=N] [rack=R] [switch=S]");
  options.rate("--copy-rate", flags.copy_rate,
               "limit of each benefactor's copying from others, bytes a second");
  options.rate("--scrub-rate", flags.scrub_rate,
               "limit of each benefactor's checking, bytes a second; 0: check only on request");
  options.count("--gc-period", flags.gc_period, 0, 86400,
                "seconds between garbage collections; 0: only on request");
  options.flag("--rebuild", flags.rebuild,
               "rebuild a lost state directory from the metadata that benefactors keep");
  options.text("--standby", flags.standby, "ADDRESS",
               "follow the manager at this address, and take over when it is lost");
  options.count("--takeover-after", flags.takeover_after, 1, 3600,
                "seconds of silence after which a standby considers the manager lost");
  options.flag("--unconfined", flags.unconfined, kUnconfinedHelp);
  metrics::describe(options, flags.metrics);
  options.log_level(flags.log_level);
  return options.parse_or_exit(argc, argv);
}

bool split_listen(const std::string& text, transport::EndpointOptions& options) {
  const auto address = parse_host_port(text);
  if (!address) return false;
  options.listen_host = address->host;
  options.listen_port = address->port;
  return true;
}

/// Creates the directory and makes its path absolute: benefactors and clients have
/// other working directories.
Status prepare_drain(std::string& directory) {
  if (directory.empty()) return {};
  STDCHK_TRY(make_durable_directory(directory, 0755));
  char resolved[PATH_MAX];
  if (::realpath(directory.c_str(), resolved) == nullptr) return fail_errno("drain.realpath");
  directory = resolved;
  return {};
}

/// Opens a second endpoint for a standby: the first one listens, and this one connects to the
/// manager.
Result<std::unique_ptr<transport::Endpoint>> open_to_manager(Clock& clock,
                                                             const std::string& secret_file) {
  transport::EndpointOptions options;
  options.clock = &clock;
  // Not by the name of all managers: a link has two different ends.
  auto keyring = read_root_keyring(secret_file, new_member(Role::kManager));
  if (!keyring) return fail(Code::kConfig, "manager.secret");
  options.identity = std::move(*keyring);
  return transport::open_endpoint("tcp", options);
}

/// As write_file_at_once(), and the file survives a power failure.
bool write_for_good(const std::string& path, const std::string& text) {
  return write_file_at_once(path, text) && sync_path(path) &&
         sync_path(path.substr(0, path.rfind('/')));
}

/// A Door passes new links to the present owner of the address, or drops them if there is none.
struct Door final : transport::AcceptHandler {
  void on_accept(std::unique_ptr<transport::Link> link) override {
    if (to != nullptr) to->on_accept(std::move(link));
  }
  transport::AcceptHandler* to = nullptr;
};

/// The present role of this process, for its metrics. Threads: the reactor's.
struct ManagerShown {
  void collect(metrics::Exposition& to) const {
    to.gauge("stdchk_manager_serves", "1 when it serves a pool; 0: it stands by, or is rebuilt.",
             std::uint64_t{service != nullptr});
    if (service != nullptr) return service->collect(to);
    if (standby == nullptr) return;
    to.gauge("stdchk_standby_hears_manager", "1 when it hears the manager that it stands by for.",
             std::uint64_t{standby->follows()});
  }
  const Standby* standby = nullptr;
  ServiceMetrics* service = nullptr;  ///< null: it does not serve yet
};

/// Returns the error text for a damaged journal.
std::string damaged(const std::string& state, const std::string& how) {
  return fmt::format(
      "{0}/journal.db is damaged: {1}. The benefactors may have all that it had: move "
      "{0}/journal.db* away, and `stdchk recover`, or start with --rebuild",
      state, how);
}

/// Runs until the journal is rebuilt, or the process is told to end. The error text says why it
/// failed. `standby` is null when no other manager can be alive.
tl::expected<void, std::string> rebuild(Reactor& reactor, Journal& journal,
                                        const Membership& membership, Door& door,
                                        const std::string& address, Standby* standby) {
  Result<Rebuilder::Found> found = fail(Code::kCancelled, "manager.rebuild");
  Rebuilder rebuilder(reactor, journal, membership, [&](Result<Rebuilder::Found> got) {
    found = std::move(got);
    reactor.stop();
  });
  const Status started = standby == nullptr ? rebuilder.start() : rebuilder.start_as_standby();
  if (!started) {
    switch (started.error().code) {
      case Code::kExists:
        return tl::unexpected(
            std::string("there is a journal in the state directory, so this is no new manager; "
                        "start without --rebuild and --standby, or elsewhere"));
      case Code::kCorrupt:
        return tl::unexpected(std::string(
            "there is a journal in the state directory, and it is damaged; move journal.db* away"));
      default:
        return tl::unexpected(describe(started.error()));
    }
  }
  if (standby == nullptr) {
    log::info("waits at {} for benefactors that keep the metadata", address);
  } else {
    log::info("stands by at {}", address);
    standby->watch(rebuilder);
  }
  door.to = &rebuilder;
  reactor.run();
  door.to = nullptr;
  if (!found && found.error().code == Code::kNotFound) {
    return tl::unexpected(
        std::string("no benefactor came that keeps the metadata; they look for the manager where "
                    "it was, so --listen must be that address"));
  }
  if (!found && found.error().code == Code::kCorrupt) {
    return tl::unexpected(std::string(
        "the metadata of all benefactors that came is damaged, as was said of each; try again when "
        "there are others that keep it. Files that are drained are whole"));
  }
  if (!found) return tl::unexpected(describe(found.error()));
  log::info("rebuilt from the benefactor on {}: {} records of epoch {}; {} benefactors came",
            found->host_name, found->records, found->epoch.value, found->benefactors);
  if (!found->complete) {
    log::warning(
        "benefactors know of later records that none of those who came has: what these did is "
        "lost");
  }
  reactor.resume();
  return {};
}

int run(Flags flags) {
  if (const Status confined = flags.unconfined ? Status() : confine({}); !confined) {
    return fail_with(describe(confined.error()));
  }
  SystemClock clock;
  Reactor reactor(clock);
  end_on_signals(reactor);
  const auto keyring = read_root_keyring(flags.secret_file, transport::secure::kAnyManager);
  if (!keyring) return fail_with(keyring.error());
  transport::EndpointOptions listen;
  listen.clock = &clock;
  listen.identity = *keyring;
  if (!split_listen(flags.listen, listen)) {
    return fail_with(
        fmt::format("--listen {} is not HOST, HOST:PORT or [IPV6]:PORT", flags.listen));
  }
  if (const Status made = prepare_drain(flags.drain); !made) {
    return fail_with(fmt::format("the drain directory {} cannot be used: {}", flags.drain,
                                 describe(made.error())));
  }
  if (flags.rebuild && !flags.standby.empty()) {
    return fail_with(
        "--rebuild and --standby exclude each other: the one is for a manager that is gone, the "
        "other for one that is there");
  }
  auto journal = SqliteJournal::open(flags.state);
  if (!journal && journal.error().code == Code::kCorrupt) {
    return fail_with(damaged(flags.state, "it is no database that SQLite can read"));
  }
  if (!journal) {
    const char* const why = journal.error().code == Code::kBusy
                                ? "another manager runs on it; end that one first"
                                : "see the reason that follows";
    return fail_with(fmt::format("the state directory {} cannot be used: {} ({})", flags.state, why,
                                 describe(journal.error())));
  }
  auto endpoint = transport::open_endpoint("tcp", listen);
  if (!endpoint) {
    return fail_with(
        fmt::format("cannot listen on {}: {}", flags.listen, describe(endpoint.error())));
  }
  ManagerShown shown;
  const auto served = metrics::serve(
      flags.metrics, metrics::page_of("stdchk-manager", reactor,
                                      [&](metrics::Exposition& to) { shown.collect(to); }));
  if (!served) return fail_with(served.error());
  const std::string standby_file = flags.state + "/standby";
  Status journalled;
  Config config;
  std::getline(std::ifstream(standby_file), config.standby);
  config.remember_standby = [&](const std::string& address) {
    return write_for_good(standby_file, address + "\n");
  };
  auto policy = parse_policy(flags.policy);
  if (!policy) return fail_with(fmt::format("--policy: {}", policy.error().text));
  config.policy = std::move(*policy);
  if (flags.copies > 0) config.policy.apply({{{PolicyKey::kCopies, flags.copies}}});
  const auto copies = static_cast<std::uint32_t>(config.policy.get(PolicyKey::kCopies));
  if (!flags.topology.empty()) {
    auto topology = Topology::read(flags.topology);
    if (!topology) {
      return fail_with(fmt::format("--topology {}: {}", flags.topology, topology.error()));
    }
    config.topology = std::move(*topology);
  }
  config.membership = Membership(*keyring);
  const Membership membership = config.membership;
  config.pool = {flags.chunk_size, flags.stripe_width, *parse_naming(flags.naming), flags.drain,
                 flags.drain_rate};
  if (flags.chunking == "none") config.pool.naming = Naming::kOff;
  config.pool.content_cuts = flags.chunking == "content";
  config.pool.copies = copies;
  config.copy_rate_bytes_per_s = flags.copy_rate;
  config.scrub_rate_bytes_per_s = flags.scrub_rate;
  config.gc_period = std::chrono::seconds(flags.gc_period);
  config.drain_total_bytes_per_s = flags.drain_total;
  config.drain_yields = flags.drain_yields;
  config.on_journal_failure = [&](const Error& error) {
    journalled = fail(error);
    reactor.stop();
  };
  Epoch later;
  config.on_superseded = [&](Epoch epoch) {
    later = epoch;
    reactor.stop();
  };
  std::string damage;
  config.on_damaged = [&](const std::string& how) {
    damage = how;
    reactor.stop();
  };
  reactor.add(**endpoint);
  Door door;
  const auto listen_now = [&]() -> tl::expected<void, std::string> {
    const Status listening = (*endpoint)->listen(door);
    if (listening) return {};
    return tl::unexpected(
        fmt::format("cannot listen on {}: {}", flags.listen, describe(listening.error())));
  };
  const auto write_address = [&] {
    return write_file_at_once(flags.address_file, (*endpoint)->address() + "\n");
  };
  const bool is_new = flags.rebuild || !flags.standby.empty();
  if (is_new) {
    if (const auto listening = listen_now(); !listening) return fail_with(listening.error());
  }
  std::string refused;
  const auto refuse = [&](const std::string& why) {
    refused = why;
    reactor.stop();
  };
  std::unique_ptr<transport::Endpoint> to_manager;
  std::unique_ptr<Standby> standby;
  if (!flags.standby.empty()) {
    auto opened = open_to_manager(clock, flags.secret_file);
    if (!opened) return fail_with(describe(opened.error()));
    to_manager = std::move(*opened);
    reactor.add(*to_manager);
    Standby::Config follow;
    follow.manager = flags.standby;
    follow.address = (*endpoint)->address();
    follow.silence = std::chrono::seconds(flags.takeover_after);
    follow.on_followed = [&] {
      if (!write_address()) refuse(flags.address_file + " cannot be written");
    };
    follow.on_refused = refuse;
    standby = std::make_unique<Standby>(reactor, *to_manager, std::move(follow));
    shown.standby = standby.get();
  }
  if (is_new) {
    const auto done =
        rebuild(reactor, **journal, membership, door, (*endpoint)->address(), standby.get());
    if (!refused.empty()) {
      return fail_with(
          fmt::format("cannot stand by for the manager at {}: {}", flags.standby, refused));
    }
    if (!done && standby && ended_by() != 0) return EXIT_SUCCESS;
    if (!done) return fail_with(fmt::format("cannot rebuild: {}", done.error()));
  }
  const std::string awaited = config.standby;
  Service service(reactor, **journal, std::move(config));
  if (const Status started = service.start(); !started) {
    if (!(*journal)->damage().empty() && started.error().code == Code::kCorrupt) {
      return fail_with(damaged(flags.state, (*journal)->damage()));
    }
    return fail_with(fmt::format("the state in {} cannot be loaded: {}", flags.state,
                                 describe(started.error())));
  }
  ServiceMetrics of_service(service, **journal);
  shown.service = &of_service;
  door.to = &service;
  if (standby) {
    standby->tell(service.state().epoch());
  } else if (!is_new) {
    if (const auto listening = listen_now(); !listening) return fail_with(listening.error());
  }
  if (const Status written = write_address(); !written) {
    return fail_with(
        fmt::format("{} cannot be written: {}", flags.address_file, describe(written.error())));
  }
  log::info("listens on {}", (*endpoint)->address());
  if (!awaited.empty()) {
    log::info(
        "answers nothing before its standby at {} is heard; when there is none any more, remove {} "
        "and start again",
        awaited, standby_file);
  }
  reactor.run();
  if (journalled && !later && damage.empty()) log::info("ends");
  const Epoch own = service.state().epoch();
  service.stop();
  standby.reset();
  if (to_manager) reactor.remove(*to_manager);
  reactor.remove(**endpoint);
  if (later) {
    return fail_with(fmt::format(
        "another manager, of epoch {}, has taken this pool over; this one, of epoch {}, ends. If "
        "its state directory was lost, and there is no other, start it with --rebuild",
        later.value, own.value));
  }
  if (!damage.empty()) return fail_with(damaged(flags.state, damage));
  if (journalled) return EXIT_SUCCESS;
  return fail_with(fmt::format(
      "the journal in {} cannot be written, so the manager ends; what was committed is in it: {}",
      flags.state, describe(journalled.error())));
}

}  // namespace
}  // namespace stdchk::manager

int main(int argc, char** argv) {
  stdchk::manager::Flags flags;
  if (const auto status = stdchk::manager::parse(flags, argc, argv)) return *status;
  stdchk::crash_at_once();
  stdchk::log::start("stdchk-manager", flags.log_level);
  return stdchk::manager::run(std::move(flags));
}
