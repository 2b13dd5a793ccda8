// The reactor's thread, and opening files.
#include "client/blocking/blocking_filesystem.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "client/blocking/blocking_file.h"
#include "client/blocking/empty_file.h"
#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/runtime/ask_reactor.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

/// A BufferOwner takes borrowed slots back into the window of one engine.
class BufferOwner final : public WindowBufferOwner {
 public:
  explicit BufferOwner(Engine& engine) : engine_(engine) {}
  void give_back(Slot& slot) override {
    const Lock lock(engine_.shared().mutex);
    engine_.window().give_back(slot);
    engine_.shared().changed.notify_all();
  }

 private:
  Engine& engine_;
};

/// Ends a session at once that is ending later. The caller waits for its end.
void end_now(Session& session) STDCHK_REQUIRES(engine_lock) {
  [[maybe_unused]] const auto ends_already = session.start_commit(true);
}

std::string this_host() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

std::size_t hash_thread_count(const Options& options) {
  if (options.hash_threads != 0) return options.hash_threads;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 4);
}

}  // namespace

BlockingFilesystem::BlockingFilesystem(const Options& options, Clock& clock, Parts parts)
    : BlockingNames(clock), options_(options), parts_(std::move(parts)) {
  reactor_ = std::make_unique<Reactor>(clock);
  std::vector<transport::Endpoint*> data;
  for (const auto& endpoint : parts_.endpoints) {
    reactor_->add(*endpoint);
    data.push_back(endpoint.get());
  }
  if (parts_.control_only != nullptr) reactor_->add(*parts_.control_only);
  executor_ = std::make_unique<ThreadExecutor>("stdchk-hash", hash_thread_count(options));
  files_ = std::make_unique<FileThreads>();
  Engine::Config config;
  config.manager_address = options.manager_address;
  config.role = options.role;
  config.host_token = parts_.host_token;
  config.host_name = this_host();
  config.pid = ::getpid();
  config.window_bytes = options.window_bytes;
  config.cache_bytes = options.cache_bytes;
  config.naming = options.naming;
  config.content_cuts = options.content_cuts;
  config.chunk_bytes = options.chunk_bytes;
  config.sessions.copies = options.copies;
  config.sessions.waits_for_copies = options.close_mode == CloseMode::kRedundant;
  config.encryption.key = options.key;
  config.encryption.encrypts = options.encrypts;
  set_engine(std::make_unique<Engine>(*reactor_, *parts_.control, std::move(data), *executor_,
                                      *files_, std::move(config)));
  buffer_owner_ = std::make_shared<BufferOwner>(engine());
}

Result<std::unique_ptr<Filesystem>> BlockingFilesystem::connect_over(const Options& options,
                                                                     Clock& clock, Parts parts) {
  auto filesystem =
      std::unique_ptr<BlockingFilesystem>(new BlockingFilesystem(options, clock, std::move(parts)));
  STDCHK_TRY(filesystem->start());
  return std::unique_ptr<Filesystem>(std::move(filesystem));
}

Status BlockingFilesystem::start() {
  thread_ = start_without_signals([this] { reactor_->run(); });
  STDCHK_TRY(reactor_->post([this] { engine().start(); }));
  Lock lock(engine().shared().mutex);
  return wait(lock, clock().now() + limits::kCallDeadline,
              [this]() STDCHK_REQUIRES(engine_lock) -> Status {
                if (!engine().registration().ready->done())
                  return fail(Code::kWouldBlock, "client.connect");
                return *engine().registration().ready->status;
              });
}

BlockingFilesystem::~BlockingFilesystem() {
  buffer_owner_.reset();
  if (const Status sent = sync_names(); !sent) {
    log::error("the last changes of names may be lost: {}", describe(sent.error()));
  }
  (void)reactor_->post([this] { engine().begin_stop(); });
  {
    // Commits under way may continue until kEarlyCommit has passed; all other sessions end at once.
    Lock lock(engine().shared().mutex);
    (void)wait(lock, clock().now() + kEarlyCommit, [this]() STDCHK_REQUIRES(engine_lock) -> Status {
      if (!engine().idle()) return fail(Code::kWouldBlock, "client.stop");
      return {};
    });
  }
  // The goodbye and the last completions of transfers need a few turns of the reactor.
  (void)reactor_->post([this] {
    engine().say_goodbye();
    reactor_->schedule_after(20ms, [this] {
      engine().close_links();
      reactor_->schedule_after(1ms, [this] { reactor_->stop(); });
    });
  });
  thread_.join();
  executor_.reset();
  files_.reset();
  set_engine(nullptr);
  for (const auto& endpoint : parts_.endpoints) reactor_->remove(*endpoint);
  if (parts_.control_only != nullptr) reactor_->remove(*parts_.control_only);
  // Timers may still hold links. Destroy the reactor, and links with it, before the endpoints.
  reactor_.reset();
}

Result<Figures> BlockingFilesystem::figures(Duration longest) {
  return ask_reactor<Figures>(*reactor_, longest, [this] { return engine().figures(); });
}

void BlockingFilesystem::set_cache_events(CacheEvents events) {
  const Lock lock(engine().shared().mutex);
  engine().set_events(std::move(events));
}

msg::PoolConfig BlockingFilesystem::config() const {
  const Lock lock(engine().shared().mutex);
  return engine().config();
}

// ---- open -------------------------------------------------------------------------------------

/// Waits until an early close of the file is committed or lost, so that the open sees every version
/// that was closed before. Returns the error of a lost commit, once.
Status BlockingFilesystem::wait_for_early_close(FileId file) {
  Lock lock(engine().shared().mutex);
  STDCHK_TRY(wait(lock, deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    const SessionPtr session = engine().sessions().find(file);
    const bool waits = session != nullptr &&
                       (session->ending() || session->committer().promised()) &&
                       !session->error().has_value();
    if (waits && session->ending()) end_now(*session);
    return waits ? fail(Code::kWouldBlock, "client.open") : Status{};
  }));
  const auto lost = engine().sessions().take_lost(file);
  return lost.has_value() ? fail(*lost) : Status{};
}

Result<std::unique_ptr<File>> BlockingFilesystem::open(FileId file, OpenFlags flags) {
  STDCHK_TRY(settle(file));
  STDCHK_TRY(wait_for_early_close(file));
  if (flags.write || flags.truncate || flags.append) return open_writer(file, flags);
  return open_reader(file);
}

Result<std::unique_ptr<File>> BlockingFilesystem::share(Lock& lock, const SessionPtr& session,
                                                        OpenFlags flags, Time started) {
  // Counts this opener before any wait: otherwise another opener could be the last one and end the
  // session.
  ++session->openers;
  session->note_opener(flags.append);
  auto file = std::make_unique<BlockingFile>(*this, session, flags.append, started);
  file->set_image(is_image(session->file()));
  if (flags.truncate) {
    const Status cut =
        wait(lock, deadline(), [&]() STDCHK_REQUIRES(engine_lock) { return session->truncate(0); });
    if (!cut.has_value()) {
      const Unlocked unlocked(lock);
      file.reset();
      return fail(cut.error());
    }
  }
  file->set_changed(flags.truncate);
  return std::unique_ptr<File>(std::move(file));
}

Result<std::unique_ptr<File>> BlockingFilesystem::open_writer(FileId file, OpenFlags flags) {
  const Time started = clock().now();
  {
    Lock lock(engine().shared().mutex);
    // Wait for a session that is ending (an early close, or the last commit) before opening anew.
    SessionPtr session;
    STDCHK_TRY(wait(lock, deadline(), [&]() STDCHK_REQUIRES(engine_lock) -> Status {
      session = engine().sessions().find(file);
      if (session == nullptr || !session->ending()) return {};
      end_now(*session);
      return fail(Code::kWouldBlock, "client.open");
    }));
    if (session != nullptr) {
      auto shared = share(lock, session, flags, started);
      session.reset();
      return shared;
    }
  }
  msg::OpenSession request;
  request.file = file;
  request.truncate = flags.truncate;
  return open_session(std::move(request), flags);
}

Result<std::unique_ptr<File>> BlockingFilesystem::open_session(msg::OpenSession request,
                                                               OpenFlags flags) {
  const Time started = clock().now();
  // The directory's own attributes change at the file's first commit, so they stay valid until then.
  const auto cache = [this, parent = request.parent, name = request.name](
                         const Attributes& attributes) STDCHK_REQUIRES(engine_lock) {
    if (!name.empty()) put_name(parent, name, attributes);
  };
  Lock lock(engine().shared().mutex);
  const auto opening = engine().open_session(std::move(request), cache);
  const auto answered = [&]() STDCHK_REQUIRES(engine_lock) -> Status {
    if (!opening->status.has_value()) return fail(Code::kWouldBlock, "client.open");
    return *opening->status;
  };
  const Status opened = wait(lock, deadline(), answered, &opening->answered);
  STDCHK_TRY(opened);
  if (leased() != nullptr) leased()->calls().forget_attributes(opening->attributes.id);
  opening->session->note_opener(flags.append);
  auto file =
      std::make_unique<BlockingFile>(*this, std::move(opening->session), flags.append, started);
  file->set_changed(flags.truncate || opening->created);
  file->set_image(is_image(opening->attributes.id));
  return std::unique_ptr<File>(std::move(file));
}

Result<std::unique_ptr<File>> BlockingFilesystem::open_reader(FileId file) {
  const Time started = clock().now();
  // Declared before the lock: a reader that fails takes the lock when it is destroyed.
  std::unique_ptr<BlockingFile> reader;
  Lock lock(engine().shared().mutex);
  SessionPtr session = engine().sessions().find(file);
  if (session != nullptr && session->ending()) session.reset();
  VersionMapPtr map = session == nullptr ? engine().maps().open(file) : nullptr;
  reader = std::make_unique<BlockingFile>(*this, file, std::move(session), std::move(map), started);
  return opened(lock, reader);
}

Result<std::unique_ptr<File>> BlockingFilesystem::open_version(FileId file, Version version) {
  if (version == 0) return fail(Code::kInvalidArgument, "client.open_version");
  const Time started = clock().now();
  std::unique_ptr<BlockingFile> reader;
  Lock lock(engine().shared().mutex);
  reader = std::make_unique<BlockingFile>(*this, file, nullptr, engine().maps().open(file, version),
                                          started);
  return opened(lock, reader);
}

/// Waits until `reader` knows its version. On failure `reader` stays set.
Result<std::unique_ptr<File>> BlockingFilesystem::opened(Lock& lock,
                                                         std::unique_ptr<BlockingFile>& reader) {
  STDCHK_TRY(wait(lock, deadline(),
                  [&]() STDCHK_REQUIRES(engine_lock) { return reader->readable(lock); }));
  return std::unique_ptr<File>(std::move(reader));
}

Result<std::unique_ptr<File>> BlockingFilesystem::create(FileId parent, std::string_view name,
                                                         OpenFlags flags, Owner owner) {
  if (name.size() > limits::kNameBytesMax) return fail(Code::kNameTooLong, "client.create");
  if (flags.unnamed) return create_at_manager(parent, {}, flags, owner);
  LeasedNames::Turn turn(leased());
  if (leased() != nullptr) {
    STDCHK_ASSIGN(const auto made, leased()->create(turn, parent, name, flags.exclusive, owner));
    if (made.has_value() && made->existing) return open_existing(made->existing, flags);
    if (made.has_value()) {
      return std::make_unique<EmptyFile>(*this, *leased(), made->made, flags.append, clock().now());
    }
  }
  auto file = create_at_manager(parent, name, flags, owner);
  if (file.has_value()) turn.set_changed();
  return file;
}

/// Opens a file for writing that a create has found in a held directory.
Result<std::unique_ptr<File>> BlockingFilesystem::open_existing(FileId file, OpenFlags flags) {
  STDCHK_TRY(settle(file));
  STDCHK_TRY(wait_for_early_close(file));
  return open_writer(file, flags);
}

Result<std::unique_ptr<File>> BlockingFilesystem::create_at_manager(FileId parent,
                                                                    std::string_view name,
                                                                    OpenFlags flags, Owner owner) {
  if (!flags.exclusive && !flags.unnamed) {
    // A file that this process already writes is shared, not opened a second time.
    FileId known;
    bool writing = false;
    {
      const Lock lock(engine().shared().mutex);
      writing = !engine().idle() || engine().sessions().has_lost();
      const auto entry = engine().metadata().entry(parent, name);
      if (entry.has_value() && entry->attributes.has_value() &&
          engine().sessions().find(entry->attributes->id) != nullptr) {
        known = entry->attributes->id;
      }
      // A negative cache entry means: the manager found no file less than a cache lease ago. Then no
      // session here writes a file of that name. A mount's kernel looks names up before a create.
      const bool is_free = entry.has_value() && !entry->attributes.has_value();
      writing = writing && !is_free;
    }
    if (!known && writing) {
      // The cache may have dropped a name whose session is still committing: ask the manager.
      const auto found = lookup_at_manager(parent, name);
      if (found.has_value()) STDCHK_TRY(wait_for_early_close(found->id));
      const Lock lock(engine().shared().mutex);
      if (found.has_value() && engine().sessions().find(found->id) != nullptr) known = found->id;
    }
    if (known) {
      STDCHK_TRY(wait_for_early_close(known));
      auto file = open_writer(known, flags);
      if (file.has_value() || file.error().code != Code::kStale) return file;
      // The session has ended without a commit, so the file is gone: create it again.
    }
  }
  msg::OpenSession request;
  request.parent = parent;
  request.name = std::string(name);
  request.exclusive = flags.exclusive;
  request.truncate = flags.truncate;
  request.mode = owner.mode;
  request.uid = owner.uid;
  request.gid = owner.gid;
  request.unmasked = owner.unmasked;
  request.unnamed = flags.unnamed;
  auto file = open_session(std::move(request), flags);
  // The name exists after all: drop a negative cache entry for it.
  if (!file.has_value() && file.error().code == Code::kExists) forget(parent, name, FileId{});
  return file;
}

// ---- borrowed buffers -------------------------------------------------------------------------

Result<WindowBuffer> borrow_buffer(Filesystem& filesystem) {
  auto& blocking = static_cast<BlockingFilesystem&>(filesystem);
  Engine& engine = blocking.engine();
  const Lock lock(engine.shared().mutex);
  Slot* slot = engine.window().borrow();
  if (slot == nullptr) return fail(Code::kBusy, "client.borrow");
  return WindowBuffer(MutableByteSpan(slot->data - kSlotHeadroom, kSlotHeadroom),
                      MutableByteSpan(slot->data, engine.window().chunk_bytes()), slot,
                      blocking.buffer_owner());
}

WindowBuffer& WindowBuffer::operator=(WindowBuffer&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  headroom_ = other.headroom_;
  data_ = other.data_;
  owner_ = std::move(other.owner_);
  slot_ = other.take();
  return *this;
}

Slot* WindowBuffer::take() {
  headroom_ = {};
  data_ = {};
  return std::exchange(slot_, nullptr);
}

void WindowBuffer::give_back() {
  Slot* slot = take();
  if (slot == nullptr) return;
  if (const auto owner = owner_.lock()) owner->give_back(*slot);
}

}  // namespace stdchk::client
