#include "client/blocking/blocking_file.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "client/blocking/empty_file.h"
#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::client {
namespace {

constexpr std::uint64_t kComparedMax = 64 * limits::kMiB;
constexpr std::size_t kComparedAtOnce = 256 * limits::kKiB;

/// Compares the bytes of two files in [from, end).
Result<bool> have_equal_ranges(File& one, File& other, std::uint64_t from, std::uint64_t end) {
  std::vector<std::byte> ones(kComparedAtOnce);
  std::vector<std::byte> others(kComparedAtOnce);
  while (from < end) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(ones.size(), end - from));
    STDCHK_ASSIGN(const std::size_t first, one.read(from, MutableByteSpan(ones).first(bytes)));
    STDCHK_ASSIGN(const std::size_t second, other.read(from, MutableByteSpan(others).first(bytes)));
    if (first != bytes || second != bytes) return false;
    if (std::memcmp(ones.data(), others.data(), bytes) != 0) return false;
    from += bytes;
  }
  return true;
}

}  // namespace

/// A Measured times one call that may have to wait for the pool, and keeps the longest time so far
/// in `totals().longest_call_ns`.
///
/// Threads: made and destroyed with the lock held.
class BlockingFile::Measured {
 public:
  explicit Measured(BlockingFile& file) STDCHK_REQUIRES(engine_lock)
      : engine_(file.filesystem_.engine()) {}
  ~Measured() {
    const auto took = static_cast<std::uint64_t>((engine_.clock().now() - began_).count());
    std::uint64_t& longest = engine_.counts().writers.longest_call_ns;
    longest = std::max(longest, took);
  }
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;
  Time began() const { return began_; }

 private:
  Engine& engine_;
  const Time began_ = engine_.clock().now();
};

/// A WindowWait measures how long a call is blocked because the window has no free slot. Its
/// destructor adds the time to the engine's figures.
///
/// Threads: with the lock held.
class BlockingFile::WindowWait {
 public:
  explicit WindowWait(Engine& engine) : engine_(engine) {}
  ~WindowWait() {
    if (!since_) return;
    ++engine_.counts().window_waits;
    engine_.counts().window_waited += engine_.clock().now() - *since_;
  }
  WindowWait(const WindowWait&) = delete;
  WindowWait& operator=(const WindowWait&) = delete;
  /// Starts the clock when this step was blocked while no slot was free. Returns `status`
  /// unchanged.
  Status note(Status status) STDCHK_REQUIRES(engine_lock) {
    const bool blocked = !status && status.error().code == Code::kWouldBlock;
    if (blocked && !since_ && engine_.window().free_count() == 0) since_ = engine_.clock().now();
    return status;
  }

 private:
  Engine& engine_;
  std::optional<Time> since_;
};

BlockingFile::BlockingFile(BlockingFilesystem& filesystem, SessionPtr session, bool append,
                           Time opened)
    : filesystem_(filesystem),
      file_(filesystem.engine(), std::move(session), append),
      opened_(opened),
      written_from_(opened) {}

BlockingFile::BlockingFile(BlockingFilesystem& filesystem, FileId file, SessionPtr session,
                           VersionMapPtr map, Time opened)
    : filesystem_(filesystem),
      file_(filesystem.engine(), file, std::move(session), std::move(map)),
      opened_(opened),
      written_from_(opened) {}

void BlockingFile::count_written(std::uint64_t bytes, Time began) {
  if (written_from_ == Time{}) written_from_ = began;
  written_bytes_ += bytes;
}

/// Adds the bytes and the time of this close or commit to the figures for OT (observed throughput).
/// A close without new bytes is not counted.
void BlockingFile::count_close() {
  if (written_bytes_ == 0) return;
  Engine& engine = filesystem_.engine();
  const Duration took = engine.clock().now() - std::exchange(written_from_, Time{});
  engine.counts().writers.closed_bytes += std::exchange(written_bytes_, 0);
  engine.counts().writers.open_to_close_ns += static_cast<std::uint64_t>(took.count());
}

BlockingFile::~BlockingFile() {
  Lock lock(filesystem_.engine().shared().mutex);
  if (!closed_ && file_.writes()) {
    const SessionPtr session = file_.session();
    if (--session->openers == 0 &&
        !(session->committer().promised() && session->start_commit(true))) {
      session->abort(Code::kCancelled);
    }
  }
  file_.release(lock);
}

Status BlockingFile::usable() const {
  if (closed_) return fail(Code::kInvalidArgument, "client.file: closed");
  return {};
}

/// Repeats `step` until it ends; see BlockingQuestions::wait() for `changed`. The deadline starts anew whenever `progress()` has changed,
/// because a large call may take longer than one deadline.
template <class Progress, class Step>
Status BlockingFile::repeat_while_progressing(Lock& lock, Progress progress, Step step,
                                              CondVar* changed) {
  for (;;) {
    const auto before = progress();
    Status status = filesystem_.wait(lock, filesystem_.deadline(), step, changed);
    const bool late = !status.has_value() && status.error().code == Code::kDeadline;
    if (!late || progress() == before) return status;
  }
}

Status BlockingFile::writable() const {
  STDCHK_TRY(usable());
  if (!file_.writes()) return fail(Code::kInvalidArgument, "client.file: not open for writing");
  return {};
}

Attributes BlockingFile::attributes() const {
  Lock lock(filesystem_.engine().shared().mutex);
  if (closed_) return {};
  return file_.attributes(lock);
}

Result<std::size_t> BlockingFile::read(std::uint64_t offset, MutableByteSpan out) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  std::size_t done = 0;
  const DrainedReader::Wait waits(filesystem_.engine().reader().drained(), file_.owner());
  STDCHK_TRY(waits.end(repeat_while_progressing(
      lock, [&] { return done; },
      [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        if (Status may = waits.check(); !may) return may;
        return file_.read(lock, offset, out, done);
      })));
  return done;
}

Result<std::optional<std::uint64_t>> BlockingFile::seek(std::uint64_t offset, Seek what) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  std::uint64_t at = offset;
  bool found = false;
  STDCHK_TRY(repeat_while_progressing(
      lock, [&] { return at; },
      [&]() STDCHK_REQUIRES(engine_lock) -> Status { return file_.seek(lock, what, at, found); }));
  return found ? std::optional(at) : std::nullopt;
}

Result<ReadView> BlockingFile::view(std::uint64_t offset, std::size_t bytes) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  ReadView seen;
  const DrainedReader::Wait waits(filesystem_.engine().reader().drained(), file_.owner());
  const Status status =
      filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        if (Status may = waits.check(); !may) return may;
        STDCHK_ASSIGN(seen, file_.view(lock, offset, bytes));
        return {};
      });
  STDCHK_TRY(waits.end(status));
  return seen;
}

Status BlockingFile::write(std::uint64_t offset, ByteSpan bytes) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  const Measured measured(*this);
  if (file_.appends()) {
    STDCHK_TRY(filesystem_.wait(lock, filesystem_.deadline(),
                                [&]() STDCHK_REQUIRES(engine_lock) -> Status {
                                  STDCHK_ASSIGN(offset, file_.append_at(lock, bytes.size()));
                                  return {};
                                }));
  }
  std::size_t done = 0;
  changed_ = true;
  WindowWait window(filesystem_.engine());
  const Status status = repeat_while_progressing(
      lock, [&] { return done; },
      [&]() STDCHK_REQUIRES(engine_lock) {
        return window.note(file_.write(lock, offset, bytes, done));
      });
  count_written(done, measured.began());
  return status;
}

Status BlockingFile::write_adopted(WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes) {
  const std::size_t chunk = buffer.data().size();
  const bool whole = buffer && bytes.size() == chunk && bytes.data() == buffer.data().data() &&
                     offset % chunk == 0 && !file_.appends();
  if (!whole) return write(offset, bytes);
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  const Measured measured(*this);
  STDCHK_TRY(filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) {
    return file_.adopt(lock, *buffer.slot(), offset);
  }));
  changed_ = true;
  count_written(chunk, measured.began());
  buffer.take();
  return {};
}

Status BlockingFile::truncate(std::uint64_t size_bytes) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  changed_ = true;
  return filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) {
    return file_.session()->truncate(size_bytes);
  });
}

Status BlockingFile::punch(std::uint64_t from, std::uint64_t to) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  changed_ = true;
  return filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) {
    return file_.session()->punch(from, to);
  });
}

Result<MutableByteSpan> BlockingFile::reserve(std::uint64_t offset, std::size_t bytes) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  const Measured measured(*this);
  MutableByteSpan span;
  STDCHK_TRY(
      filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        STDCHK_ASSIGN(span, file_.reserve(lock, offset, bytes));
        return {};
      }));
  return span;
}

Status BlockingFile::submit(std::uint64_t offset, std::size_t bytes) {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(writable());
  changed_ = true;
  STDCHK_TRY(file_.submit(lock, offset, bytes));
  count_written(bytes, filesystem_.engine().clock().now());
  return {};
}

/// Calls `begin` until it is not refused with kWouldBlock, then waits for the Completion that it
/// returned.
Status BlockingFile::wait_for(Lock& lock, const std::function<Result<CompletionPtr>()>& begin) {
  const Time deadline = filesystem_.deadline();
  CompletionPtr done;
  STDCHK_TRY(filesystem_.wait(lock, deadline, [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    STDCHK_ASSIGN(done, begin());
    return {};
  }));
  return repeat_while_progressing(
      lock, [&] { return done->moved; },
      [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        if (!done->done()) return fail(Code::kWouldBlock, "client.file");
        return *done->status;
      },
      &done->ended);
}

Status BlockingFile::sync() {
  if (!image_) return commit();
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  if (!file_.writes()) return {};
  const Measured measured(*this);
  const SessionPtr session = file_.session();
  return wait_for(lock, [&]() STDCHK_REQUIRES(engine_lock) -> Result<CompletionPtr> {
    return session->start_sync();
  });
}

Status BlockingFile::commit() {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  if (!file_.writes()) return {};
  const Measured measured(*this);
  STDCHK_TRY(wait_for(lock, [&]() STDCHK_REQUIRES(engine_lock) { return begin_commit(false); }));
  STDCHK_TRY(redundant(lock));
  count_close();
  return {};
}

Status BlockingFile::commit_as(Version version) {
  {
    const Lock lock(filesystem_.engine().shared().mutex);
    STDCHK_TRY(writable());
    file_.session()->committer().commit_next_as(version);
  }
  return commit();
}

bool BlockingFile::early() const {
  return filesystem_.close_mode() == CloseMode::kEarly && !file_.session()->waits_for_copies;
}

/// Marks the commit that has begun as promised: close() returns without waiting for it.
Status BlockingFile::promise(const Result<CompletionPtr>& begun) {
  if (!begun.has_value()) return fail(begun.error());
  file_.session()->committer().promise();
  return (*begun)->status.value_or(Status{});
}

Status BlockingFile::flush() {
  {
    const Lock lock(filesystem_.engine().shared().mutex);
    STDCHK_TRY(usable());
    if (!file_.writes()) return {};
    if (early()) {
      const Measured measured(*this);
      STDCHK_TRY(promise(begin_commit(false)));
      count_close();
      return {};
    }
  }
  return commit();
}

/// Waits until the committed version has all its copies, if the mount or the folder asks for that.
Status BlockingFile::redundant(Lock& lock) {
  const Session& session = *file_.session();
  const Version version = session.attributes().version;
  const bool waits = filesystem_.close_mode() == CloseMode::kRedundant || session.waits_for_copies;
  if (!waits || version == 0) return {};
  const Unlocked unlocked(lock);
  return filesystem_.wait_redundant(id(), version);
}

Result<CompletionPtr> BlockingFile::begin_commit(bool end) {
  // The version implies all changes of names before it.
  filesystem_.engine().leases().send_changes();
  auto begun = file_.session()->start_commit(end);
  if (begun.has_value()) changed_ = false;
  return begun;
}

bool BlockingFile::dirty() const {
  Lock lock(filesystem_.engine().shared().mutex);
  return !closed_ && file_.writes() && dirty(lock);
}

bool BlockingFile::dirty(Lock&) const {
  const Session& session = *file_.session();
  return session.content().dirty() && (changed_ || session.openers == 1);
}

/// Waits until the manager has ended the session. The next open of the name then finds the content
/// from before the session.
void BlockingFile::abort() {
  Lock lock(filesystem_.engine().shared().mutex);
  if (closed_ || !file_.writes()) return;
  file_.drop_reserved();
  const SessionPtr session = file_.session();
  session->abort(Code::kCancelled);
  const Status ended =
      filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
        if (!session->ended()) return fail(Code::kWouldBlock, "client.abort");
        return {};
      });
  if (!ended)
    log::warning("The manager did not confirm the end of an aborted write: {}",
                 describe(ended.error()));
}

Status BlockingFile::close() {
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  // Drops reservations: the commit would wait for them, and no caller can submit them.
  file_.drop_reserved();
  Status status;
  if (file_.writes()) {
    const Measured measured(*this);
    status = leave(lock);
    if (status.has_value()) count_close();
  }
  closed_ = true;
  if (file_.session() != nullptr) {
    figures_ = file_.session()->figures();
    figures_.open_to_close = filesystem_.engine().clock().now() - opened_;
  }
  file_.release(lock);
  return status;
}

/// Ends this opener's part in the session. The last opener's commit also ends the session. With
/// CloseMode::kEarly nobody waits for that commit.
Status BlockingFile::leave(Lock& lock) {
  const SessionPtr session = file_.session();
  const auto begin = [&]() STDCHK_REQUIRES(engine_lock) -> Result<CompletionPtr> {
    if (session->openers == 1 || dirty(lock)) return begin_commit(session->openers == 1);
    auto nothing = std::make_shared<Completion>();
    nothing->end({});
    return nothing;
  };
  Status status;
  if (session->ending()) {
    // The session was aborted, or the manager has ended it.
    if (session->error().has_value()) status = fail(*session->error());
  } else if (early()) {
    status = promise(begin());
  } else {
    status = wait_for(lock, begin);
    if (status.has_value()) status = redundant(lock);
  }
  // Another opener may have come while this call waited. A session without openers must end.
  if (--session->openers == 0 && !session->ending()) {
    if (status.has_value() && !session->content().dirty() &&
        session->start_commit(true).has_value()) {
      return status;
    }
    session->abort(status.has_value() ? Code::kCancelled : status.error().code);
  }
  return status;
}

Status BlockingFile::refresh() {
  STDCHK_TRY(commit());
  // Not from the cache: another client may have committed under the lock that the caller has now.
  STDCHK_ASSIGN(const Attributes now, filesystem_.attributes_fresh(id()));
  Lock lock(filesystem_.engine().shared().mutex);
  STDCHK_TRY(usable());
  return filesystem_.wait(lock, filesystem_.deadline(),
                          [&]() STDCHK_REQUIRES(engine_lock) { return file_.refresh(lock, now); });
}

Result<std::unique_ptr<File>> BlockingFile::find_grown() {
  const Attributes now = attributes();
  STDCHK_ASSIGN(const Attributes newest, filesystem_.attributes(id()));
  if (newest.version == now.version || newest.size_bytes <= now.size_bytes) return nullptr;
  // The bytes are read by a File of their own: this File's read-ahead belongs to its user.
  std::unique_ptr<BlockingFile> earlier;
  std::unique_ptr<BlockingFile> grown;
  std::optional<std::uint64_t> same;
  {
    Engine& engine = filesystem_.engine();
    Lock lock(engine.shared().mutex);
    STDCHK_TRY(usable());
    const auto open = [&](VersionMapPtr map) {
      return std::make_unique<BlockingFile>(filesystem_, id(), nullptr, std::move(map), Time{});
    };
    const VersionMapPtr own = file_.version_map();
    if (own == nullptr) return nullptr;
    earlier = open(own);
    grown = open(engine.maps().open(id()));
    STDCHK_TRY(filesystem_.wait(lock, filesystem_.deadline(), [&]() STDCHK_REQUIRES(engine_lock) {
      return earlier->file_.compare(grown->file_, same);
    }));
  }
  const bool is_longer = grown->attributes().size_bytes > now.size_bytes;
  if (!is_longer || !same || *same + kComparedMax < now.size_bytes) return nullptr;
  STDCHK_ASSIGN(const bool is_alike, have_equal_ranges(*earlier, *grown, *same, now.size_bytes));
  if (!is_alike) return nullptr;
  return grown;
}

void BlockingFile::follow(const File& grown) {
  const Lock lock(filesystem_.engine().shared().mutex);
  if (!closed_) file_.follow(dynamic_cast<const BlockingFile&>(grown).file_);
}

SessionFigures BlockingFile::figures() const {
  const Lock lock(filesystem_.engine().shared().mutex);
  if (closed_ || file_.session() == nullptr) return figures_;
  return file_.session()->figures();
}

ReadView::~ReadView() {
  if (chunk_ == nullptr) return;
  const Lock lock(engine_->shared().mutex);
  engine_->reader().give_back(*chunk_, bytes_.size());
}

namespace {

/// Returns nullptr for other kinds of File. `writes`: an empty file is about to get its first byte.
Result<BlockingFile*> blocking_file(File& file, bool writes) {
  if (auto* const own = dynamic_cast<BlockingFile*>(&file)) return own;
  auto* const empty = dynamic_cast<EmptyFile*>(&file);
  if (empty == nullptr) return nullptr;
  return writes ? empty->with_session() : empty->session_if_any();
}

}  // namespace

Result<ReadView> view(File& file, std::uint64_t offset, std::size_t bytes) {
  // Other kinds of File, such as fakes in tests, have no cache.
  STDCHK_ASSIGN(BlockingFile* const own, blocking_file(file, false));
  return own == nullptr ? Result<ReadView>{ReadView{}} : own->view(offset, bytes);
}

Status write_adopted(File& file, WindowBuffer& buffer, std::uint64_t offset, ByteSpan bytes) {
  STDCHK_ASSIGN(BlockingFile* const own, blocking_file(file, true));
  return own == nullptr ? file.write(offset, bytes) : own->write_adopted(buffer, offset, bytes);
}

}  // namespace stdchk::client
