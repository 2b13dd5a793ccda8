#include "fuse/mount.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/files/mount_table.h"
#include "fuse/mountpoint.h"
#include "fuse/receive_buffer.h"

namespace stdchk::mount {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kReadAheadKilobytes = 1024;  // one request, limits::kMiB
/// Interrupts a thread that waits for the kernel. It has no other use.
constexpr int kWakeSignal = SIGUSR1;
/// Requests end before, unless the kernel makes them wait.
constexpr Duration kStopMax = 2 * limits::kOperationDeadline;

void ignore_wake(int) {}

void install_wake_signal() {
  struct sigaction action {};
  action.sa_handler = ignore_wake;  // without SA_RESTART, so that read(2) returns
  sigemptyset(&action.sa_mask);
  sigaction(kWakeSignal, &action, nullptr);
}

void log_of_libfuse(fuse_log_level level, const char* format, va_list arguments) {
  char line[512];
  int length = vsnprintf(line, sizeof(line), format, arguments);
  if (length <= 0) return;
  std::string_view text(line,
                        std::min<std::size_t>(static_cast<std::size_t>(length), sizeof(line) - 1));
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  log::write(level <= FUSE_LOG_WARNING ? log::Level::kWarning : log::Level::kDebug, text);
}

fuse_session* make_session(const MountOptions& options, Bridge& bridge) {
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  std::string settings = "default_permissions,subtype=stdchk,fsname=" + options.source;
  if (options.allow_other) settings += ",allow_other";
  if (options.devices) settings += ",dev,suid";  // libfuse's defaults are nodev,nosuid
  fuse_opt_add_arg(&arguments, "stdchk-mount");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, settings.c_str());
  const fuse_lowlevel_ops& operations = Bridge::operations();
  fuse_session* session = fuse_session_new(&arguments, &operations, sizeof(operations), &bridge);
  fuse_opt_free_args(&arguments);
  return session;
}

}  // namespace

Mount::Mount(client::Filesystem& filesystem, Clock& clock, const Attributes& root,
             const MountOptions& options)
    : options_(options),
      filesystem_(filesystem),
      bridge_(filesystem, clock, root, options.bridge) {}

Result<std::unique_ptr<Mount>> Mount::start(client::Filesystem& filesystem, Clock& clock,
                                            const MountOptions& options) {
  auto ready = check_fuse_available();
  if (ready) ready = prepare_mountpoint(options.mountpoint);
  if (!ready) {
    log::error("{}", ready.error().text);
    return fail(Code::kConfig, "mount.start");
  }
  fuse_set_log_func(log_of_libfuse);
  install_wake_signal();
  const auto root = filesystem.attributes(kRootFile);
  if (!root) {
    log::error("The root folder of the pool cannot be read: {}", describe(root.error()));
    return tl::unexpected(root.error());
  }
  std::unique_ptr<Mount> mount(new Mount(filesystem, clock, *root, options));
  mount->session_ = make_session(options, mount->bridge_);
  if (mount->session_ == nullptr) return fail(Code::kNoMemory, "mount.session");
  if (fuse_session_mount(mount->session_, options.mountpoint.c_str()) != 0) {
    log::error(
        "Mounting on {} failed; the lines above say why.{}", options.mountpoint,
        options.allow_other ? " --allow-other needs user_allow_other in /etc/fuse.conf." : "");
    return fail(Code::kSystem, "mount.mount");
  }
  mount->mounted_ = true;
  mount->mount_id_ = stdchk::mount_id(options.mountpoint);
  mount->hooked_ = InitExchange::install(mount->session_, [](void* user) -> InitExchange& {
    return static_cast<Bridge*>(user)->init_exchange();
  });
  mount->bridge_.start(mount->session_);
  {
    const MutexLock lock(mount->mutex_);
    mount->start_thread_locked();
  }
  raise_read_ahead(options.mountpoint, kReadAheadKilobytes);
  return mount;
}

Mount::~Mount() {
  stop();
  if (session_ != nullptr) fuse_session_destroy(session_);
}

void Mount::on_end(std::function<void()> call) {
  const MutexLock lock(mutex_);
  on_end_ = std::move(call);
  if (ended_) on_end_();
}

bool Mount::ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

void Mount::start_thread_locked() {
  threads_++;
  waiting_++;
  std::thread thread([this] { serve(); });
  running_.push_back(thread.native_handle());
  thread.detach();  // threads_ counts it; stop() waits for it
}

void Mount::serve() {
  ReceiveBuffer receive(options_.use_window && hooked_ ? &filesystem_ : nullptr);
  fuse_buf buffer{};
  bool by_kernel = false;
  for (;;) {
    if (hooked_) buffer.mem = receive.prepare();
    int received = fuse_session_receive_buf(session_, &buffer);
    if (fuse_session_exited(session_) != 0) {
      by_kernel = received == 0;
      break;
    }
    if (received == -EINTR || received == -EAGAIN) continue;
    if (received <= 0) {
      if (received < 0)
        log::error("Receiving from the kernel failed: {}", std::strerror(-received));
      by_kernel = true;
      fuse_session_exit(session_);
      break;
    }
    {
      const MutexLock lock(mutex_);
      if (--waiting_ == 0 && threads_ < kThreadsMax) start_thread_locked();
    }
    fuse_session_process_buf(session_, &buffer);
    const MutexLock lock(mutex_);
    waiting_++;
    if (waiting_ > kThreadsIdleMax) break;
  }
  if (!hooked_) std::free(buffer.mem);
  std::function<void()> tell;
  const MutexLock lock(mutex_);
  waiting_--;
  threads_--;
  std::erase(running_, pthread_self());
  if (by_kernel && !ended_) {
    ended_ = true;
    if (on_end_) on_end_();
  }
  thread_ended_.notify_all();
}

void Mount::stop() {
  if (!mounted_) return;
  // The notifier may wait in the kernel for a directory that a request holds. Stop it while
  // requests are still served.
  bridge_.stop();
  fuse_session_exit(session_);
  {
    MutexLock lock(mutex_);
    on_end_ = nullptr;
    // A thread may wait in the kernel for the end of a request, whose answer the bridge has dropped.
    // The end of the connection ends all requests.
    auto abort_at = std::chrono::steady_clock::now() + kStopMax;
    while (threads_ > 0) {
      if (std::chrono::steady_clock::now() >= abort_at) {
        if (stdchk::mount_id(options_.mountpoint) == mount_id_) abort_mount(options_.mountpoint);
        abort_at = std::chrono::steady_clock::time_point::max();
      }
      // A signal may come just before its thread begins to wait, so send it until all threads have
      // ended.
      for (pthread_t thread : running_) pthread_kill(thread, kWakeSignal);
      thread_ended_.wait_for(lock, 20ms);
    }
  }
  // libfuse unmounts what is at that path, and that may be another process's mount by now.
  if (stdchk::mount_id(options_.mountpoint) == mount_id_) fuse_session_unmount(session_);
  mounted_ = false;
}

}  // namespace stdchk::mount
