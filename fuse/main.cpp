// stdchk-mount: shows a pool as a directory.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "client/api/filesystem.h"
#include "client/blocking/name_leasing.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/mount_lock.h"
#include "core/files/mount_table.h"
#include "core/files/pool_files.h"
#include "core/runtime/confinement.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "fuse/guard.h"
#include "fuse/metrics.h"
#include "fuse/mount.h"
#include "fuse/mountpoint.h"
#include "metrics/daemon.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::mount {
namespace {

constexpr int kEndedByKernel = SIGUSR2;
/// Covers the moment in which `stdchk up` holds the lock to look at the mount.
constexpr auto kLockPatience = std::chrono::seconds(2);

/// How the kernel mounts the pool.
struct KernelSettings {
  std::string mountpoint;
  std::string source = "stdchk";
  bool allow_other = false;
  bool devices = false;
  bool writeback = true;
};

struct Settings {
  std::string manager;
  std::string secret_file;
  std::string key_file;
  bool encrypts = false;
  std::string ready_file;
  std::uint64_t window_bytes = limits::kWindowBytesDefault;
  std::string close = "stored";
  std::string naming;
  std::string chunking;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t copies = 0;
  std::string transport = "auto";
  KernelSettings kernel;
  std::string unseen_writer = "commit";
  std::string names = "leased";
  std::uint32_t watchdog_s = 20;
  bool unconfined = false;
  metrics::Flags metrics;
  log::Level log_level = log::Level::kInfo;
};

void describe_options(Options& options, Settings& settings) {
  options
      .text("--manager", settings.manager, "ADDRESS",
            "address of the pool's manager, and of its standby behind a comma")
      .required();
  options
      .text("--secret-file", settings.secret_file, "FILE",
            "file with this member's key, or the pool's secret")
      .required();
  options.text("--ready-file", settings.ready_file, "FILE", "write this file when the mount works")
      .required();
  options.text("--key-file", settings.key_file, "FILE",
               "file with the pool's key, which opens encrypted images");
  options.flag("--encrypt", settings.encrypts, "store images so that benefactors cannot read them");
  options.size("--window", settings.window_bytes, 4 * limits::kMiB, 64 * limits::kGiB,
               "memory for bytes on their way to the pool");
  options.choice("--close", settings.close, {"stored", "early", "redundant"},
                 "close() waits for one copy, for nothing, or for all copies");
  options.redundancy("--copies", settings.copies,
                     "copies of each chunk on different hosts, or parity ec(k,m); 0: as the folder "
                     "or the pool says");
  options.choice("--naming", settings.naming, {"auto", "on", "off"},
                 "name chunks by content and store equal chunks once; auto: where that pays; "
                 "default: the pool's");
  options.choice("--chunking", settings.chunking, {"fixed", "content", "none"},
                 "end chunks after a fixed length, or where their content says; none: fixed, "
                 "without names; default: the pool's");
  options.chunk_size("--chunk-size", settings.chunk_bytes,
                     "cut files into chunks of this size; default: the pool's");
  options.choice("--transport", settings.transport, transport::choices(),
                 "move bytes by this transport", transport::former_choices());
  options.flag("--allow-other", settings.kernel.allow_other, "let other users use the mount");
  options.flag(
      "--devices", settings.kernel.devices,
      "open device nodes and honour set-ID bits, as a local file system does; only for root");
  options.text("--source", settings.kernel.source, "NAME",
               "name of the mount in df and the mount table");
  options.on_off("--writeback", settings.kernel.writeback,
                 "let the kernel collect small writes that go through its page cache");
  options.choice("--unseen-writer", settings.unseen_writer, {"commit", "abort"},
                 "close() of a writer that the mount cannot see commits or drops its bytes");
  options.choice(
      "--names", settings.names, {"stored", "leased"},
      "answer changes of names at once in directories that this mount uses alone; stored: "
      "answer when they are stored");
  options.count("--watchdog", settings.watchdog_s, 0, 3600,
                "seconds of silence after which the guard restarts the process that serves the "
                "mount; 0: no guard");
  options.flag("--unconfined", settings.unconfined, kUnconfinedHelp);
  metrics::describe(options, settings.metrics);
  options.log_level(settings.log_level);
  options.argument("MOUNTPOINT", settings.kernel.mountpoint, "an empty directory").required();
}

/// Beats once a second until one of these signals comes, and returns that signal.
int wait_for(const sigset_t& ends, const Pulse& pulse) {
  constexpr timespec kBeat{1, 0};
  int signal = -1;
  while (signal < 0) {
    pulse.beat();
    signal = sigtimedwait(&ends, nullptr, &kBeat);
  }
  return signal;
}

metrics::Endpoint::Page page_of(client::Filesystem& filesystem, Mount& mounted) {
  return [&]() -> Result<std::string> {
    STDCHK_ASSIGN(const client::Figures client, filesystem.figures(metrics::kAnswerTimeMax));
    metrics::Exposition out = metrics::begin("stdchk-mount");
    collect(mounted.request_counts(), client, out);
    return out.text();
  };
}

/// Only root's mount: a user's is unmounted by fusermount3, whose set-user-ID bit has no effect in
/// a confined process.
bool is_confined(const Settings& settings) { return !settings.unconfined && geteuid() == 0; }

client::Options client_options(const Settings& settings) {
  client::Options wanted;
  wanted.manager_address = settings.manager;
  wanted.encrypts = settings.encrypts;
  wanted.role = "mount";
  wanted.transport = settings.transport;
  wanted.window_bytes = settings.window_bytes;
  wanted.naming = parse_naming(settings.naming);
  if (settings.chunking == "none") wanted.naming = Naming::kOff;
  if (!settings.chunking.empty()) wanted.content_cuts = settings.chunking == "content";
  wanted.chunk_bytes = settings.chunk_bytes;
  wanted.copies = settings.copies;
  wanted.close_mode = settings.close == "early"       ? client::CloseMode::kEarly
                      : settings.close == "redundant" ? client::CloseMode::kRedundant
                                                      : client::CloseMode::kStored;
  return wanted;
}

int run(const Settings& settings, std::shared_ptr<transport::secure::Keyring> keyring,
        const sigset_t& ends, const Pulse& pulse) {
  client::Options wanted = client_options(settings);
  wanted.keyring = std::move(keyring);
  if (!settings.key_file.empty()) {
    const auto key = read_secret_file(settings.key_file);
    if (!key) return fail_with(key.error().text);
    wanted.key = *key;
  }
  if (settings.encrypts && !wanted.key) {
    return fail_with("--encrypt needs --key-file: `stdchk up --encrypt` makes a key");
  }
  const bool confines = is_confined(settings);
  if (const Status done = confines ? confine_before_mount() : Status(); !done) {
    return fail_with(describe(done.error()));
  }
  auto filesystem = client::Filesystem::connect(wanted);
  if (!filesystem) {
    log::error("No connection to the manager at {}: {}", settings.manager,
               describe(filesystem.error()));
    return 1;
  }
  if (settings.names == "leased") client::lease_names(**filesystem);
  SystemClock clock;
  MountOptions options;
  options.mountpoint = settings.kernel.mountpoint;
  options.allow_other = settings.kernel.allow_other;
  options.devices = settings.kernel.devices;
  options.source = settings.kernel.source;
  options.bridge.commit_unseen_writers = settings.unseen_writer == "commit";
  options.bridge.writeback = settings.kernel.writeback;
  options.use_window = true;
  auto mounted = Mount::start(**filesystem, clock, options);
  if (!mounted) return 1;  // start() has logged the reason
  (*mounted)->on_end([] { kill(getpid(), kEndedByKernel); });
  auto served = metrics::serve(settings.metrics, page_of(**filesystem, **mounted));
  if (!served) {
    log::error("{}", served.error().text);
    return 1;
  }
  const Status confined = confines ? confine_after_mount({.unmounts = true}) : Status();
  if (!confined) {
    log::error("{}", describe(confined.error()));
    return 1;
  }
  Status recorded = write_file_at_once(settings.ready_file,
                                       fmt::format("{} {}\n", getpid(), (*mounted)->mount_id()));
  if (!recorded) {
    log::error("The ready file {}: {}", settings.ready_file, describe(recorded.error()));
    return 1;
  }
  log::info("{} is mounted.", settings.kernel.mountpoint);
  const int signal = wait_for(ends, pulse);
  pulse.end();
  log::info("{} ends{}.", settings.kernel.mountpoint,
            signal == kEndedByKernel ? ": it was unmounted" : "");
  unlink(settings.ready_file.c_str());
  served->reset();
  mounted->reset();     // first stop the requests of the kernel,
  filesystem->reset();  // then say goodbye to the pool
  return 0;
}

}  // namespace
}  // namespace stdchk::mount

int main(int argc, char** argv) {
  using namespace stdchk;
  mount::Settings settings;
  Options options("stdchk-mount", "Shows a pool as a directory.");
  mount::describe_options(options, settings);
  if (auto status = options.parse_or_exit(argc, argv)) return *status;
  // Block the signals before any thread starts, so that only run() receives them.
  sigset_t ends;
  sigemptyset(&ends);
  for (int signal : {SIGTERM, SIGINT, SIGHUP, mount::kEndedByKernel}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  let_crashes_end_the_process();
  log::start("stdchk-mount", settings.log_level);
  if (settings.kernel.devices && geteuid() != 0) {
    return fail_with("--devices is only for root: the mount of a user opens no devices");
  }
  // Read once: it may come through a pipe, and the process that serves is started again.
  const auto keyring =
      transport::secure::read_keyring(settings.secret_file, transport::secure::Role::kClient);
  if (!keyring) return fail_with(keyring.error().text);
  if (!mount::is_source_name(settings.kernel.source)) {
    return fail_with(
        "--source takes 1 to 64 letters, digits and characters of `._:/-`, because libfuse gives "
        "others a meaning");
  }
  settings.kernel.mountpoint = real_mount_point(settings.kernel.mountpoint);
  const auto ready = mount::prepare_mountpoint(settings.kernel.mountpoint);
  if (!ready) return fail_with(ready.error().text);
  const auto lock = MountLock::take(settings.kernel.mountpoint, mount::kLockPatience);
  if (!lock) return fail_with(lock.error().text);
  return mount::guard(
      {settings.kernel.mountpoint, settings.watchdog_s},
      [&](const mount::Pulse& pulse) { return mount::run(settings, *keyring, ends, pulse); });
}
