#include "fuse/locker.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <limits>
#include <utility>

#include "core/base/log.h"
#include "fuse/bridge.h"
#include "fuse/workers.h"

namespace stdchk::mount {
namespace {

constexpr std::size_t kThreads = 4;

int errno_of(const Result<msg::LockOutcome>& outcome) {
  if (!outcome) {
    return outcome.error().code == Code::kCancelled ? EINTR : to_errno(outcome.error());
  }
  switch (*outcome) {
    case msg::LockOutcome::kGranted:
      return 0;
    case msg::LockOutcome::kDeadlock:
      return EDEADLK;
    default:
      return EAGAIN;
  }
}

msg::SetLock whole_file(FileId file, msg::LockSpace space, std::uint64_t owner) {
  msg::SetLock out;
  out.file = file;
  out.space = space;
  out.owner = owner;
  out.last = std::numeric_limits<std::uint64_t>::max();
  return out;
}

}  // namespace

/// A Wait tells a handler of the kernel's INTERRUPT which wait to end. It lives until its request
/// is answered.
struct Locker::Wait {
  // Clang 14 cannot make an aggregate by parentheses.
  Wait(client::Filesystem& of, std::uint64_t number) : filesystem(of), ticket(number) {}

  client::Filesystem& filesystem;
  const std::uint64_t ticket;
  std::atomic<bool> interrupted{false};

  static void interrupt(fuse_req_t, void* wait) {
    auto* const of = static_cast<Wait*>(wait);
    of->interrupted = true;
    of->filesystem.cancel_lock(of->ticket);
  }
};

/// A Threads has the workers, and the kernel's session until stop().
struct Locker::Threads {
  Workers workers;
  std::atomic<fuse_session*> session{nullptr};
};

Locker::Locker(client::Filesystem& filesystem, std::function<Status(Handle&)> commit)
    : filesystem_(filesystem), commit_(std::move(commit)), threads_(std::make_shared<Threads>()) {}

Locker::~Locker() { stop(); }

void Locker::start(fuse_session* session) {
  threads_->session = session;
  threads_->workers.start("stdchk-locks", kThreads);
}

void Locker::stop() {
  threads_->session = nullptr;
  threads_->workers.stop();
}

void Locker::set(fuse_req_t request, Handle& handle, msg::SetLock wanted, bool sleep) {
  wanted.file = handle.node->file;
  const bool releases = wanted.kind == msg::LockKind::kNone;
  {
    const MutexLock lock(mutex_);
    if (sleep && !releases) wanted.ticket = next_ticket_++;
    if (!releases) owners_[{wanted.file, wanted.space, wanted.owner}] = &handle;
    if (!releases && wanted.space == msg::LockSpace::kRecord)
      handle.lock_owners.insert(wanted.owner);
  }
  if (releases) {
    threads_->workers.run([this, request, &handle, wanted] { release(request, handle, wanted); });
  } else {
    take(request, handle, wanted);
  }
}

void Locker::take(fuse_req_t request, Handle& handle, const msg::SetLock& wanted) {
  const auto wait = std::make_shared<Wait>(filesystem_, wanted.ticket);
  const bool waits = wanted.ticket != 0;
  if (waits) fuse_req_interrupt_func(request, &Wait::interrupt, wait.get());
  filesystem_.lock(wanted, [this, threads = threads_, request, &handle, wait,
                            waits](const Result<msg::LockOutcome>& outcome) {
    threads->workers.run([this, request, &handle, wait, waits, outcome] {
      // Afterwards no INTERRUPT uses `wait`.
      if (waits) fuse_req_interrupt_func(request, nullptr, nullptr);
      answer(request, handle, outcome);
    });
  });
  // The INTERRUPT may have come before the library knew the ticket.
  if (wait->interrupted) filesystem_.cancel_lock(wait->ticket);
}

void Locker::answer(fuse_req_t request, Handle& handle, Result<msg::LockOutcome> outcome) {
  if (outcome == msg::LockOutcome::kGranted) {
    if (const Status now = catch_up(handle); !now) {
      log::error("A lock was granted, and the newest version of file {} cannot be read: {}",
                 handle.node->file.value, describe(now.error()));
      outcome = fail(now.error());
    }
  }
  reply_error(request, errno_of(outcome));
}

void Locker::release(fuse_req_t request, Handle& handle, const msg::SetLock& wanted) {
  const Status committed = write_back(handle);
  filesystem_.lock(
      wanted, [threads = threads_, request, committed](const Result<msg::LockOutcome>& outcome) {
        threads->workers.run([request, committed, outcome] {
          reply_error(request, committed ? errno_of(outcome) : to_errno(committed.error()));
        });
      });
}

/// Drops the kernel's pages of the node. The kernel first writes the dirty ones back.
void Locker::drop_pages(const Handle& handle) {
  fuse_session* const session = threads_->session;
  if (session == nullptr || handle.node->cached_opens == 0) return;
  fuse_lowlevel_notify_inval_inode(session, handle.node->id, 0, 0);
}

void Locker::seek(fuse_req_t request, Handle& handle, std::uint64_t offset, client::Seek what) {
  const auto answer = [request, &handle, offset, what] {
    // Readers see bytes that no writer has committed. Only a writer's File knows these bytes.
    const ReaderLock lock(handle.node->mutex);
    client::File& file =
        handle.node->writers.empty() ? *handle.file : *handle.node->writers.front();
    const auto found = file.seek(offset, what);
    if (!found) return reply_error(request, to_errno(found.error()));
    if (!*found) return reply_error(request, ENXIO);
    fuse_reply_lseek(request, static_cast<off_t>(**found));
  };
  if (!handle.node->in_session() || handle.node->cached_opens == 0) return answer();
  // The kernel holds this file open until the request is answered.
  threads_->workers.run([this, &handle, answer] {
    drop_pages(handle);
    answer();
  });
}

/// Commits what was written under the lock.
Status Locker::write_back(Handle& handle) {
  if (!handle.writes || handle.node->unlinked) return {};
  drop_pages(handle);
  return handle.file->dirty() ? commit_(handle) : Status{};
}

/// Goes on with the newest version, which another mount may have committed under the lock.
Status Locker::catch_up(Handle& handle) {
  Node& node = *handle.node;
  if (node.unlinked) return {};
  drop_pages(handle);
  const Attributes before = handle.file->attributes();
  // A commit may also bring bytes of others that the kernel's pages lack.
  const bool commits = handle.writes && handle.file->dirty();
  if (commits) STDCHK_TRY(commit_(handle));
  STDCHK_TRY(handle.file->refresh());
  const Attributes now = handle.file->attributes();
  if (!commits && now.version == before.version) return {};
  {
    const WriterLock lock(node.mutex);
    node.went_on = true;
    node.last = now;
  }
  // Other opens of the node go on with this version at their next read.
  handle.refreshes = ++node.refreshes;
  node.changed = true;
  if (now.size_bytes > before.size_bytes) grow(handle, now.size_bytes);
  if (fuse_session* const session = threads_->session) {
    fuse_lowlevel_notify_inval_inode(session, node.id, 0, 0);
  }
  return {};
}

/// Tells the kernel that the file is longer. With the write-back cache it takes no size from
/// attributes, but from data that it is given.
void Locker::grow(const Handle& handle, std::uint64_t size_bytes) {
  fuse_session* const session = threads_->session;
  std::array<std::byte, 1> last{};
  const auto count = handle.file->read(size_bytes - 1, last);
  if (session == nullptr || !count || *count == 0) return;
  fuse_bufvec data{};
  data.count = 1;
  data.buf[0].size = last.size();
  data.buf[0].mem = last.data();
  data.buf[0].fd = -1;
  fuse_lowlevel_notify_store(session, handle.node->id, static_cast<off_t>(size_bytes - 1), &data,
                             static_cast<fuse_buf_copy_flags>(0));
}

void Locker::get(fuse_req_t request, const Handle& handle, msg::GetLock wanted) {
  wanted.file = handle.node->file;
  const auto found = filesystem_.get_lock(wanted);
  if (!found) return reply(request, fail(found.error()));
  struct flock out {};
  out.l_whence = SEEK_SET;
  out.l_type = found->kind == msg::LockKind::kNone     ? F_UNLCK
               : found->kind == msg::LockKind::kShared ? F_RDLCK
                                                       : F_WRLCK;
  out.l_start = static_cast<off_t>(found->first);
  const bool to_end = found->last >= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max());
  out.l_len = to_end ? 0 : static_cast<off_t>(found->last - found->first + 1);
  out.l_pid = static_cast<pid_t>(found->pid);
  fuse_reply_lock(request, &out);
}

void Locker::closed(Handle& handle, std::uint64_t owner, const std::function<void()>& done) {
  const FileId file = handle.node->file;
  {
    const MutexLock lock(mutex_);
    handle.lock_owners.erase(owner);
    if (owners_.erase({file, msg::LockSpace::kRecord, owner}) == 0) return done();
  }
  filesystem_.lock(
      whole_file(file, msg::LockSpace::kRecord, owner),
      [threads = threads_, done](const Result<msg::LockOutcome>&) { threads->workers.run(done); });
}

void Locker::ended(const Handle& handle, std::optional<std::uint64_t> flock_owner) {
  const FileId file = handle.node->file;
  const MutexLock lock(mutex_);
  for (const std::uint64_t owner : handle.lock_owners) {
    end_lock(handle, {file, msg::LockSpace::kRecord, owner});
  }
  if (flock_owner) end_lock(handle, {file, msg::LockSpace::kFlock, *flock_owner});
}

/// Ends all locks of an owner, unless the owner has used another open since. Sends the request
/// with the mutex held: the next request of an owner with the same number goes out behind it.
void Locker::end_lock(const Handle& handle, const Owner& owner) {
  const auto found = owners_.find(owner);
  if (found == owners_.end() || found->second != &handle) return;
  owners_.erase(found);
  const auto& [file, space, number] = owner;
  filesystem_.lock(whole_file(file, space, number), [](const Result<msg::LockOutcome>&) {});
}

}  // namespace stdchk::mount
