// stdchk-pager maps images of a pool into programs of one user on one host. A page is fetched when
// a program first touches it.

#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "client/api/filesystem.h"
#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/files/pool_files.h"
#include "core/runtime/confinement.h"
#include "core/runtime/daemon.h"
#include "core/runtime/options.h"
#include "fork/multicast/cast.h"
#include "fork/pager/holder.h"
#include "fork/pager/listener.h"
#include "fork/pager/server.h"
#include "metrics/daemon.h"
#include "transport/choice/factory.h"
#include "transport/secure/key_file.h"

namespace stdchk::pager {
namespace {

/// Window of the client library. The pager writes nothing to the pool, so a small window suffices.
constexpr std::uint64_t kWindowBytes = 8 * limits::kMiB;

struct Settings {
  std::string socket = default_socket();
  std::string manager;
  std::string secret_file;
  std::string key_file;
  std::string transport = "auto";
  std::string ready_file;
  std::uint64_t memory_bytes = 4 * limits::kGiB;
  std::uint64_t cache_bytes = 64 * limits::kMiB;
  std::uint64_t prefetch_bytes = 64 * limits::kKiB;
  std::uint32_t workers = 8;
  std::string cast_secret_file;
  std::string cast_own;
  bool unconfined = false;
  metrics::Flags metrics;
  log::Level log_level = log::Level::kInfo;
};

void describe_options(Options& options, Settings& settings) {
  options.text("--socket", settings.socket, "PATH", "socket at which programs ask for images");
  options.text("--manager", settings.manager, "ADDRESS",
               "address of the pool's manager; default: serve only image files of this host");
  options.text("--secret-file", settings.secret_file, "FILE",
               "file with this member's key, or the pool's secret");
  options.text("--key-file", settings.key_file, "FILE",
               "file with the pool's key, which opens encrypted images");
  options.choice("--transport", settings.transport, transport::choices(),
                 "move bytes by this transport", transport::former_choices());
  options.size("--memory", settings.memory_bytes, 16 * limits::kMiB, 64 * 1024 * limits::kGiB,
               "memory for fetched pages; above it, the oldest pages are evicted");
  options.size("--cache", settings.cache_bytes, 4 * limits::kMiB, 64 * limits::kGiB,
               "memory for chunks that are read in several pieces");
  options.size("--prefetch", settings.prefetch_bytes, kBlockBytes, 4 * limits::kMiB,
               "bytes to fetch when a program jumps to an absent page");
  options.count("--workers", settings.workers, 1, 256, "page faults to serve at the same time");
  options.text("--cast-secret-file", settings.cast_secret_file, "FILE",
               "file with the secret of senders whose images are mapped (stdchk-cast send)");
  options.text("--cast-own", settings.cast_own, "ADDRESS",
               "IPv4 address of the interface towards these senders");
  options.text("--ready-file", settings.ready_file, "FILE",
               "write this file when programs can ask");
  options.flag("--unconfined", settings.unconfined, kUnconfinedHelp);
  metrics::describe(options, settings.metrics);
  options.log_level(settings.log_level);
}

metrics::Endpoint::Page page_of(const Server& server) {
  return [&server]() -> Result<std::string> {
    const ImageCounts& counts = server.counts();
    metrics::Exposition out = metrics::begin("stdchk-pager");
    out.gauge("stdchk_pager_images", "Images in memory.", server.registry().image_count());
    out.gauge("stdchk_pager_mappings", "Mappings that are served.",
              server.registry().clone_count());
    out.gauge("stdchk_pager_bytes", "Bytes of images in memory.", counts.bytes_present.load());
    out.counter("stdchk_pager_faults_total", "Faults that programs waited for.",
                counts.faults.load());
    out.counter("stdchk_pager_faults_present_total",
                "Faults whose bytes had come before they were served.",
                counts.faults_present.load());
    out.counter("stdchk_pager_wanted_bytes_total", "Bytes fetched for a fault.",
                counts.bytes_wanted.load());
    out.counter("stdchk_pager_ahead_bytes_total", "Bytes fetched ahead.",
                counts.bytes_ahead.load());
    out.counter("stdchk_pager_hole_bytes_total",
                "Bytes of holes of images, which were not fetched.", counts.bytes_holes.load());
    out.counter("stdchk_pager_evicted_bytes_total", "Bytes given up.", counts.bytes_evicted.load());
    out.counter("stdchk_pager_failures_total", "Pieces that could not be fetched.",
                counts.failures.load());
    return out.text();
  };
}

int serve(const Settings& settings, const client::Options& pool_options, const CastPlace& cast,
          HolderLink& holder, std::vector<Kept> kept) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const Descriptor signals(::signalfd(-1, &ends, SFD_CLOEXEC));
  int listener = -1;
  for (const Kept& each : kept) {
    if (each.kind == KeptKind::kListener) listener = each.files.front().get();
  }
  SystemClock clock;
  PoolConnection pool(pool_options, clock);
  ServerOptions options;
  options.workers = settings.workers;
  options.memory_bytes = settings.memory_bytes;
  options.cast = cast;
  options.blocks_least = static_cast<std::uint32_t>(settings.prefetch_bytes / kBlockBytes);
  Descriptor held_listener;
  for (Kept& each : kept) {
    if (each.kind == KeptKind::kListener) held_listener = std::move(each.files.front());
  }
  Server server(options, listener, pool, holder);
  server.adopt(std::move(kept));
  auto served = metrics::serve(settings.metrics, page_of(server));
  if (!served) return fail_with(served.error().text);
  if (!settings.ready_file.empty()) {
    const Status written = write_file_at_once(settings.ready_file, fmt::format("{}\n", getpid()));
    if (!written) return fail_with(describe(written.error()));
  }
  server.run(signals.get());
  served->reset();
  if (!settings.ready_file.empty()) ::unlink(settings.ready_file.c_str());
  return 0;
}

Outcome<client::Options> pool_options_of(const Settings& settings) {
  client::Options wanted;
  wanted.manager_address = settings.manager;
  wanted.role = "pager";
  wanted.transport = settings.transport;
  wanted.window_bytes = kWindowBytes;
  wanted.cache_bytes = settings.cache_bytes;
  if (settings.manager.empty()) return wanted;
  auto keyring =
      transport::secure::read_keyring(settings.secret_file, transport::secure::Role::kClient);
  if (!keyring) return problem(keyring.error());
  wanted.keyring = std::move(*keyring);
  if (settings.key_file.empty()) return wanted;
  const auto key = read_secret_file(settings.key_file);
  if (!key) return problem(key.error());
  wanted.key = *key;
  return wanted;
}

Outcome<CastPlace> cast_place_of(const Settings& settings) {
  CastPlace place;
  if (settings.cast_secret_file.empty() && settings.cast_own.empty()) return place;
  const auto own = multicast::parse_address(settings.cast_own);
  if (!own || own->port != 0 || settings.cast_secret_file.empty()) {
    return problem("--cast-own needs an IPv4 address, and --cast-secret-file, and the reverse");
  }
  const auto secret = read_secret_file(settings.cast_secret_file);
  if (!secret) return problem(secret.error());
  place.group = multicast::group_secret(*secret);
  place.own = *own;
  return place;
}

}  // namespace
}  // namespace stdchk::pager

int main(int argc, char** argv) {
  using namespace stdchk;
  pager::Settings settings;
  Options options("stdchk-pager",
                  "Serves images of a pool as memory that is fetched on demand (userfaultfd).");
  pager::describe_options(options, settings);
  if (auto status = options.parse_or_exit(argc, argv)) return *status;
  signal(SIGPIPE, SIG_IGN);
  let_crashes_end_the_process();
  log::start("stdchk-pager", settings.log_level);
  const auto pool = pager::pool_options_of(settings);
  if (!pool) return fail_with(pool.error().text);
  const auto cast = pager::cast_place_of(settings);
  if (!cast) return fail_with(cast.error().text);
  auto listener = pager::listen_at(settings.socket);
  if (!listener) return fail_with(listener.error().text);
  // Confine the process before it starts a thread or a child: both inherit the confinement.
  if (const Status confined = settings.unconfined ? Status() : confine({}); !confined) {
    return fail_with(describe(confined.error()));
  }
  std::vector<pager::Kept> kept(1);
  kept[0].files.push_back(std::move(*listener));
  const int status =
      pager::hold(std::move(kept), [&](pager::HolderLink& link, std::vector<pager::Kept> left) {
        return pager::serve(settings, *pool, *cast, link, std::move(left));
      });
  ::unlink(settings.socket.c_str());
  return status;
}
