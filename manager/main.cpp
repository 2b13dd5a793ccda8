#include <fmt/core.h>
#include <unistd.h>

#include <array>
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
#include "core/base/problem.h"
#include "core/files/durable.h"
#include "core/files/pool_files.h"
#include "core/objects/credentials.h"
#include "core/objects/object_place.h"
#include "core/policy/image_placement.h"
#include "core/runtime/confinement.h"
#include "core/runtime/daemon.h"
#include "core/runtime/reactor.h"
#include "manager/drain/drain_lease_keeper.h"
#include "manager/drain/drained_fingerprints.h"
#include "manager/flags.h"
#include "manager/journal/sqlite_journal.h"
#include "manager/recovery/rebuilder.h"
#include "manager/recovery/standby.h"
#include "manager/service/metrics.h"
#include "manager/service/service.h"
#include "metrics/daemon.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::manager {
namespace {

using transport::secure::new_member;
using transport::secure::read_root_keyring;
using transport::secure::Role;

bool split_listen(const std::string& text, transport::EndpointOptions& options) {
  const auto address = parse_host_port(text);
  if (!address) return false;
  options.listen_host = address->host;
  options.listen_port = address->port;
  return true;
}

/// Creates the directory and makes its path absolute: benefactors and clients have
/// other working directories. The text of an object store gets its endpoint and region.
Outcome<void> prepare_drain(DrainFlags& drain) {
  std::string& directory = drain.directory;
  if (is_object_store(directory)) {
    auto place = ObjectPlace::with_endpoint(directory, drain.endpoint);
    if (!place) return problem(place.error());
    // A new manager finds out now that it can reach no store.
    if (const auto found = find_credentials(); !found) return problem(found.error());
    keep_secrets_out_of_core_files();
    directory = place->text();
    return {};
  }
  if (!drain.endpoint.empty()) {
    return problem(Code::kConfig, "drain.endpoint", EINVAL,
                   "--drain-endpoint is for object stores: --drain s3://BUCKET/PREFIX");
  }
  if (directory.empty()) return {};
  const auto unusable = [&](const Error& error) {
    return problem({error, fmt::format("the drain directory {} cannot be used: {}", directory,
                                       describe(error))});
  };
  const Status made = make_durable_directory(directory, 0755);
  if (!made) return unusable(made.error());
  char resolved[PATH_MAX];
  if (::realpath(directory.c_str(), resolved) == nullptr) {
    return unusable(fail_errno("drain.realpath").value());
  }
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

/// How long a new manager waits for the end of another pool's lease.
constexpr Duration kLeasePatience = DrainLease::kStaleAfter + std::chrono::seconds(3);

/// The name by which managers of one state directory hold the lease of a drain directory.
struct HolderName {
  std::string digits;   ///< 32 hexadecimal digits
  bool is_new = false;  ///< no manager of this state directory had a name
};

Result<HolderName> holder_name(const std::string& state) {
  const std::string path = state + "/drain-holder";
  std::array<std::byte, 16> bytes{};
  HolderName name;
  std::getline(std::ifstream(path), name.digits);
  if (parse_hex(name.digits, bytes)) return name;
  fill_random(bytes);
  name = {hex_text(bytes), true};
  if (!write_file_at_once(path, name.digits + "\n", {.durable = true}))
    return fail_errno("manager.drain_holder");
  return name;
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
Outcome<void> rebuild(Reactor& reactor, Journal& journal, const Membership& membership, Door& door,
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
        return problem({started.error(),
                        "there is a journal in the state directory, so this is no new manager; "
                        "start without --rebuild and --standby, or elsewhere"});
      case Code::kCorrupt:
        return problem({started.error(),
                        "there is a journal in the state directory, and it is damaged; move "
                        "journal.db* away"});
      default:
        return problem({started.error(), describe(started.error())});
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
    return problem({found.error(),
                    "no benefactor with metadata came; benefactors look for the manager at its old "
                    "address, so --listen must be this address"});
  }
  if (!found && found.error().code == Code::kCorrupt) {
    return problem(
        {found.error(),
         "all benefactors that came have damaged metadata (see the warnings above); try again when "
         "other benefactors with metadata are up. Drained files are whole"});
  }
  if (!found) return problem({found.error(), describe(found.error())});
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

/// A Process is the manager's process: it opens what the flags name, stands by or rebuilds when it
/// is to, and then serves the pool. Call its steps in order, until one returns an exit status.
///
/// Threads: one, the reactor's.
class Process {
 public:
  explicit Process(Flags flags) : flags_(std::move(flags)) {}

  std::optional<int> open();
  std::optional<int> configure();
  /// Rebuilds the journal when this is a new manager of an old pool.
  std::optional<int> prepare();
  /// Serves until the process is told to end, or cannot go on.
  int serve();

 private:
  bool is_new() const { return flags_.takeover.makes_new_manager(); }
  std::optional<int> open_journal();
  std::optional<int> follow();
  std::optional<int> hold_drain_directory();
  Outcome<void> listen_now();
  std::string standby_file() const { return flags_.state + "/standby"; }
  Status write_address() {
    return write_file_at_once(flags_.address_file, endpoint_->address() + "\n");
  }
  void refuse(const std::string& why) {
    refused_ = why;
    reactor_.stop();
  }
  void end_process_when_manager_ends();
  int ended(Epoch own) const;

  Flags flags_;
  SystemClock clock_;
  Reactor reactor_{clock_};
  transport::EndpointOptions listen_;
  std::unique_ptr<SqliteJournal> journal_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  Config config_;
  ManagerShown shown_;
  std::unique_ptr<metrics::Endpoint> served_;
  Door door_;
  std::unique_ptr<transport::Endpoint> to_manager_;
  std::unique_ptr<Standby> standby_;
  std::unique_ptr<DrainLeaseKeeper> lease_;
  std::unique_ptr<DrainedFingerprints> fingerprints_;
  std::string refused_;  ///< the reason why the manager does not want this standby
  // Why the manager cannot go on.
  Status journalled_;
  Epoch later_;
  std::string damage_;
};

std::optional<int> Process::open() {
  if (const Status confined = flags_.unconfined ? Status() : confine({}); !confined) {
    return fail_with(describe(confined.error()));
  }
  end_on_signals(reactor_);
  const auto keyring = read_root_keyring(flags_.secret_file, transport::secure::kAnyManager);
  if (!keyring) return fail_with(keyring.error().text);
  listen_.clock = &clock_;
  listen_.identity = *keyring;
  config_.membership = Membership(*keyring);
  if (!split_listen(flags_.listen, listen_)) {
    return fail_with(
        fmt::format("--listen {} is not HOST, HOST:PORT or [IPV6]:PORT", flags_.listen));
  }
  if (const auto made = prepare_drain(flags_.drain); !made) return fail_with(made.error().text);
  if (flags_.takeover.rebuild && !flags_.takeover.standby.empty()) {
    return fail_with(
        "--rebuild and --standby exclude each other: --rebuild replaces a lost manager, "
        "--standby follows a running manager");
  }
  return open_journal();
}

std::optional<int> Process::open_journal() {
  auto journal = SqliteJournal::open(flags_.state);
  if (!journal && journal.error().code == Code::kCorrupt) {
    return fail_with(damaged(flags_.state, "SQLite cannot read it as a database"));
  }
  if (!journal) {
    const char* const why = journal.error().code == Code::kBusy
                                ? "another manager uses it; end the other manager first"
                                : "see the reason that follows";
    return fail_with(fmt::format("the state directory {} cannot be used: {} ({})", flags_.state,
                                 why, describe(journal.error())));
  }
  journal_ = std::move(*journal);
  auto endpoint = transport::open_endpoint("tcp", listen_);
  if (!endpoint) {
    return fail_with(
        fmt::format("cannot listen on {}: {}", flags_.listen, describe(endpoint.error())));
  }
  endpoint_ = std::move(*endpoint);
  auto served = metrics::serve(
      flags_.metrics, metrics::page_of("stdchk-manager", reactor_,
                                       [this](metrics::Exposition& to) { shown_.collect(to); }));
  if (!served) return fail_with(served.error().text);
  served_ = std::move(*served);
  return std::nullopt;
}

std::optional<int> Process::configure() {
  std::getline(std::ifstream(standby_file()), config_.standby);
  config_.remember_standby = [this](const std::string& address) {
    return static_cast<bool>(write_file_at_once(standby_file(), address + "\n", {.durable = true}));
  };
  auto policy = parse_policy(flags_.policy);
  if (!policy) return fail_with(fmt::format("--policy: {}", policy.error().text));
  config_.policy = std::move(*policy);
  if (flags_.redundancy.copies > 0)
    config_.policy.apply({{{PolicyKey::kCopies, flags_.redundancy.copies}}});
  if (const auto refused = check_together(config_.policy)) {
    return fail_with(fmt::format("--copies and --policy: {}", refused->text));
  }
  const auto copies = static_cast<std::uint32_t>(config_.policy.get(PolicyKey::kCopies));
  if (!flags_.redundancy.topology.empty()) {
    auto topology = Topology::read(flags_.redundancy.topology);
    if (!topology) {
      return fail_with(
          fmt::format("--topology {}: {}", flags_.redundancy.topology, topology.error().text));
    }
    config_.topology = std::move(*topology);
  }
  config_.pool = {flags_.chunks.size_bytes, flags_.chunks.stripe_width,
                  *parse_naming(flags_.chunks.naming), flags_.drain.directory, flags_.drain.rate};
  if (flags_.chunks.cutting == "none") config_.pool.naming = Naming::kOff;
  config_.pool.content_cuts = flags_.chunks.cutting == "content";
  config_.pool.copies = copies;
  config_.copy_rate_bytes_per_s = flags_.redundancy.copy_rate;
  config_.scrub_rate_bytes_per_s = flags_.redundancy.scrub_rate;
  config_.gc_period = std::chrono::seconds(flags_.gc_period);
  config_.drain_total_bytes_per_s = flags_.drain.total;
  config_.drain_yields = flags_.drain.yields;
  config_.reader_copies = flags_.redundancy.for_readers;
  end_process_when_manager_ends();
  return std::nullopt;
}

/// Has the process end when the manager cannot go on.
void Process::end_process_when_manager_ends() {
  config_.on_journal_failure = [this](const Error& error) {
    journalled_ = fail(error);
    reactor_.stop();
  };
  config_.on_superseded = [this](Epoch epoch) {
    later_ = epoch;
    reactor_.stop();
  };
  config_.on_damaged = [this](const std::string& how) {
    damage_ = how;
    reactor_.stop();
  };
}

Outcome<void> Process::listen_now() {
  const Status listening = endpoint_->listen(door_);
  if (listening) return {};
  return problem({listening.error(), fmt::format("cannot listen on {}: {}", flags_.listen,
                                                 describe(listening.error()))});
}

std::optional<int> Process::prepare() {
  reactor_.add(*endpoint_);
  if (!is_new()) return std::nullopt;
  if (const auto listening = listen_now(); !listening) return fail_with(listening.error().text);
  if (!flags_.takeover.standby.empty()) {
    if (const auto failed = follow()) return failed;
  }
  const auto done =
      rebuild(reactor_, *journal_, config_.membership, door_, endpoint_->address(), standby_.get());
  if (!refused_.empty()) {
    return fail_with(fmt::format("cannot stand by for the manager at {}: {}",
                                 flags_.takeover.standby, refused_));
  }
  if (!done && standby_ && ended_by() != 0) return EXIT_SUCCESS;
  if (!done) return fail_with(fmt::format("cannot rebuild: {}", done.error().text));
  return std::nullopt;
}

/// Makes the standby of the manager at --standby.
std::optional<int> Process::follow() {
  auto opened = open_to_manager(clock_, flags_.secret_file);
  if (!opened) return fail_with(describe(opened.error()));
  to_manager_ = std::move(*opened);
  reactor_.add(*to_manager_);
  Standby::Config follow;
  follow.manager = flags_.takeover.standby;
  follow.address = endpoint_->address();
  follow.silence = std::chrono::seconds(flags_.takeover.after_s);
  follow.on_followed = [this] {
    if (!write_address()) refuse(flags_.address_file + " cannot be written");
  };
  follow.on_refused = [this](const std::string& why) { refuse(why); };
  standby_ = std::make_unique<Standby>(reactor_, *to_manager_, std::move(follow));
  shown_.standby = standby_.get();
  return std::nullopt;
}

/// A new pool is refused while another one drains into its directory. An old pool serves the images
/// that it has, and drains when the directory is free.
std::optional<int> Process::hold_drain_directory() {
  if (flags_.drain.directory.empty()) return std::nullopt;
  const auto name = holder_name(flags_.state);
  if (!name) {
    return fail_with(fmt::format("{} cannot be written: {}", flags_.state, describe(name.error())));
  }
  const Secret pool = listen_.identity->of_managers("drain lease", {});
  const auto id = ByteSpan(pool.bytes).first(16);
  lease_ = std::make_unique<DrainLeaseKeeper>(make_lease(
      flags_.drain.directory, LeaseHolder::of_this_process(hex_text(id), name->digits), is_new()));
  config_.may_drain = [this] { return lease_->may_drain(); };
  // An object has no inode: a benefactor's word counts (docs/decisions/0073).
  if (!is_object_store(flags_.drain.directory)) {
    fingerprints_ = std::make_unique<DrainedFingerprints>(reactor_, flags_.drain.directory);
  }
  const bool is_old = is_new() || !name->is_new;
  const auto in_use = lease_->wait(is_old ? Duration::zero() : kLeasePatience);
  if (in_use && !is_old) return fail_with(*in_use);
  return std::nullopt;
}

int Process::serve() {
  if (const auto failed = hold_drain_directory()) return *failed;
  const std::string awaited = config_.standby;
  Service service(reactor_, *journal_, std::move(config_));
  if (fingerprints_) {
    service.planners().fingerprints.set_reader(
        [this](std::vector<std::string> paths, Duration limit, KnownFingerprints::Done done) {
          fingerprints_->read(std::move(paths), limit, std::move(done));
        });
  }
  if (const Status started = service.start(); !started) {
    if (!journal_->damage().empty() && started.error().code == Code::kCorrupt) {
      return fail_with(damaged(flags_.state, journal_->damage()));
    }
    return fail_with(fmt::format("the state in {} cannot be loaded: {}", flags_.state,
                                 describe(started.error())));
  }
  ServiceMetrics of_service(service, *journal_);
  shown_.service = &of_service;
  door_.to = &service;
  if (standby_) {
    standby_->announce(service.state().epoch());
  } else if (!is_new()) {
    if (const auto listening = listen_now(); !listening) return fail_with(listening.error().text);
  }
  if (const Status written = write_address(); !written) {
    return fail_with(
        fmt::format("{} cannot be written: {}", flags_.address_file, describe(written.error())));
  }
  log::info("listens on {}", endpoint_->address());
  if (!awaited.empty()) {
    log::info(
        "answers nothing before its standby at {} is heard; when there is none any more, remove "
        "{} and start again",
        awaited, standby_file());
  }
  reactor_.run();
  if (journalled_ && !later_ && damage_.empty()) log::info("ends");
  const Epoch own = service.state().epoch();
  service.stop();
  standby_.reset();
  if (to_manager_) reactor_.remove(*to_manager_);
  reactor_.remove(*endpoint_);
  return ended(own);
}

/// Says why a manager of epoch `own` has ended. Returns the exit status.
int Process::ended(Epoch own) const {
  if (later_) {
    return fail_with(fmt::format(
        "another manager, of epoch {}, has taken this pool over; this manager, of epoch {}, "
        "ends. If no other manager runs and its state directory was lost, start a manager with "
        "--rebuild",
        later_.value, own.value));
  }
  if (!damage_.empty()) return fail_with(damaged(flags_.state, damage_));
  if (journalled_) return EXIT_SUCCESS;
  return fail_with(fmt::format(
      "the journal in {} cannot be written, so the manager ends; what was committed is in it: {}",
      flags_.state, describe(journalled_.error())));
}

int run(Flags flags) {
  Process process(std::move(flags));
  if (const auto status = process.open()) return *status;
  if (const auto status = process.configure()) return *status;
  if (const auto status = process.prepare()) return *status;
  return process.serve();
}

}  // namespace
}  // namespace stdchk::manager

int main(int argc, char** argv) {
  stdchk::manager::Flags flags;
  if (const auto status = stdchk::manager::parse(flags, argc, argv)) return *status;
  stdchk::let_crashes_end_the_process();
  stdchk::log::start("stdchk-manager", flags.log_level);
  return stdchk::manager::run(std::move(flags));
}
