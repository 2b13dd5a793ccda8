#include "client/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
/// Readers do not wait for the answers of a manager that was silent for so long.
constexpr Duration kManagerQuiet = 3s;

}  // namespace

Engine::Engine(Reactor& reactor, transport::Endpoint& control,
               std::vector<transport::Endpoint*> data, Executor& executor, FileExecutor& files,
               Config config)
    : reactor_(reactor),
      data_(std::move(data)),
      executor_(executor),
      files_(files),
      config_(std::move(config)),
      state_(reactor.clock()),
      maps_(
          shared_, [this]() STDCHK_REQUIRES(engine_lock) { return state_.registration.client; },
          [this](msg::Request request, MapStore::Callback done, MapStore::Callback late)
              STDCHK_REQUIRES(engine_lock) {
                call(std::move(request), std::move(done), std::move(late));
              },
          // When the queue of posts is full, the next pump() collects.
          [this] { (void)reactor_.post([this] { pump(); }); }),
      queue_(shared_, reactor, [this] { pump(); }),
      sessions_(shared_),
      services_({shared_, reactor.clock(), maps_, queue_, sessions_, leases_}, state_),
      opener_(
          services_, sessions_,
          [this](msg::Request request, std::function<void(rpc::Answer)> done,
                 std::function<void(rpc::Answer)> late) STDCHK_REQUIRES(engine_lock) {
            call(std::move(request), std::move(done), std::move(late));
          },
          config_.sessions),
      locks_(
          shared_,
          [this](msg::Request request, std::function<void(rpc::Answer)> done)
              STDCHK_REQUIRES(engine_lock) { call(std::move(request), std::move(done)); },
          [this](Duration pause, std::function<void()> work) {
            reactor_.schedule_after(pause, std::move(work));
          }),
      hasher_(shared_, executor, state_.counts.writers, config_.encryption),
      leases_(reactor),
      peers_(reactor, data_, Peers::Config{config_.host_token}),
      manager_(
          reactor, control,
          ManagerClient::Config{config_.manager_address, msg::RegisterClient{config_.host_token,
                                                                             config_.host_name,
                                                                             config_.pid,
                                                                             config_.role,
                                                                             ClientId{},
                                                                             Epoch{},
                                                                             {}}},
          *this) {}

Engine::~Engine() {
  reactor_.cancel(watch_.timer);
  close_links();
  // Sessions refer to the window, and fetches to the cache's memory: both go first.
  queue_.clear();
  sessions_.let_go();
  state_.buffers.reader.reset();
}

void Engine::start() {
  manager_.start();
  watch_manager();
}

/// Every 20 ms, shows the state of the link to the manager to the applications' threads. Takes the
/// work along for which the reactor's queue had no room, and work that may wait.
void Engine::watch_manager() {
  bool left_behind = false;
  {
    const Lock lock(shared_.mutex);
    left_behind = queue_.take_left_behind();
    state_.registration.manager_up = manager_.registered();
    state_.registration.heard_since = manager_.heard_since();
    if (LeaseHolder* const holder = leases_.holder()) holder->tick();
    if (state_.buffers.reader != nullptr) {
      const bool quiet = reactor_.clock().now() - manager_.heard_since() >= kManagerQuiet;
      state_.buffers.reader->set_manager_answers(manager_.registered() && !quiet);
    }
    const Error& error = manager_.last_error();
    if (!state_.registration.manager_up && error.where[0] != '\0' &&
        !state_.registration.ready->done() && retry_class(error.code) == Retry::kNo) {
      state_.registration.ready->end(fail(error));
      shared_.changed.notify_all();
    }
    if (state_.registration.manager_up && std::exchange(watch_.benefactors_unknown, false)) {
      ask_benefactors();
    }
  }
  if (left_behind) pump();
  manager_.send_held();
  watch_.timer = reactor_.schedule_after(20ms, [this] { watch_manager(); });
}

/// Fetches the list of benefactors. watch_manager() repeats a call that failed, because the manager
/// announces each change only once.
void Engine::ask_benefactors() {
  call(msg::ListBenefactors{}, [this](rpc::Answer answer) {
    if (!answer.has_value()) {
      watch_.benefactors_unknown = true;
    } else if (auto* reply = std::get_if<msg::ListBenefactors::Reply>(&*answer)) {
      on_benefactors(reply->benefactors);
    }
  });
}

void Engine::begin_stop() {
  const Lock lock(shared_.mutex);
  sessions_.each([](Session& session) STDCHK_REQUIRES(engine_lock) {
    if (!session.ending()) session.abort(Code::kCancelled);
  });
}

void Engine::close_links() {
  manager_.stop();
  peers_.close();
}

void Engine::on_registered(const msg::RegisterClient::Reply& reply, bool same) {
  peers_.set_client(reply.client);
  bool first = false;
  msg::PoolConfig pool;
  {
    const Lock lock(shared_.mutex);
    state_.registration.client = reply.client;
    state_.registration.manager_up = true;
    first = !state_.registration.ready->done();
    if (first) take_settings(reply.config);
    const bool same_epoch = reply.epoch == state_.registration.epoch;
    if (!same) forget_registration(same_epoch);
    locks_.registered(reply.client, same, same_epoch);
    state_.registration.heard_since = manager_.heard_since();
    if (LeaseHolder* const holder = leases_.holder()) holder->registered(same, same_epoch);
    state_.registration.epoch = reply.epoch;
    pool = state_.registration.pool;
  }
  // make_buffers() drops transports that cannot register the buffers. Links come after it.
  const Status made = first ? make_buffers(pool) : Status{};
  on_benefactors(reply.benefactors);
  if (!first) return;
  const Lock lock(shared_.mutex);
  state_.registration.ready->end(made);
  shared_.changed.notify_all();
}

/// Takes the pool's settings. This client's own settings replace the pool's.
void Engine::take_settings(const msg::PoolConfig& pool) {
  msg::PoolConfig& settings = state_.registration.pool;
  settings = pool;
  if (config_.chunk_bytes != 0) settings.chunk_bytes = config_.chunk_bytes;
  if (config_.naming.has_value()) settings.naming = *config_.naming;
  if (!config_.content_cuts.has_value()) return;
  settings.content_cuts = *config_.content_cuts;
  // A client that asks for a way of cutting wants names too, unless it says otherwise.
  if (!config_.naming && settings.naming == Naming::kOff) settings.naming = Naming::kAuto;
}

/// Drops state that depended on the last registration. In the same epoch, the client's lease ran
/// out and the manager has given up its sessions. A manager of another epoch lets sessions resume.
void Engine::forget_registration(bool same_epoch) {
  state_.metadata.forget_all();
  maps_.forget_pins();
  sessions_.each([same_epoch](Session& session) STDCHK_REQUIRES(engine_lock) {
    same_epoch ? session.fenced() : session.manager_changed();
  });
}

Status Engine::make_buffers(const msg::PoolConfig& pool) {
  const std::uint32_t chunk = pool.chunk_bytes;
  if (chunk < limits::kChunkBytesMin || chunk > limits::kChunkBytesMax ||
      (chunk & (chunk - 1)) != 0) {
    return fail(Code::kConfig, "client.chunk size");
  }
  const std::uint64_t window_bytes =
      config_.window_bytes == 0 ? limits::kWindowBytesDefault : config_.window_bytes;
  // The cache is as large as one reader needs for reading ahead. Images are read once, and a small
  // cache stays in the processor's cache.
  const std::uint64_t cache_bytes =
      config_.cache_bytes == 0 ? window_bytes / 4 : config_.cache_bytes;
  const std::size_t window_memory_bytes =
      Window::memory_bytes(std::max<std::uint64_t>(window_bytes, 2 * chunk), chunk);
  auto data = data_;
  STDCHK_ASSIGN(auto window_memory, Memory::create_where_possible(window_memory_bytes, data));
  // The cache must hold the longest chunk that any version may have. With four chunks of this
  // pool's length, a chunk is read ahead while another is in use.
  const std::uint64_t cache_min = std::max<std::uint64_t>(4 * chunk, limits::kChunkBytesMax);
  STDCHK_ASSIGN(auto cache_memory,
                Memory::create_where_possible(
                    std::max(cache_bytes, cache_min) + PartReader::kMemoryBytes, data));
  peers_.use(data);
  STDCHK_ASSIGN(Window window, Window::create(window_memory->bytes(), chunk));
  const Lock lock(shared_.mutex);
  state_.buffers.window_memory = std::move(window_memory);
  state_.buffers.window = std::make_unique<Window>(std::move(window));
  state_.buffers.reader = make_reader(std::move(data), std::move(cache_memory));
  return {};
}

std::unique_ptr<Reader> Engine::make_reader(std::vector<transport::Endpoint*> data,
                                            std::unique_ptr<Memory> memory) {
  const auto submit = [this](Transfer& transfer)
                          STDCHK_REQUIRES(engine_lock) { queue_.read(transfer); };
  const auto run_later = [this](std::function<void()> work)
                             STDCHK_REQUIRES(engine_lock) { queue_.run_later(std::move(work)); };
  const auto read_later = [this](FileWork work)
                              STDCHK_REQUIRES(engine_lock) { queue_.read_later(std::move(work)); };
  StripeReader::Host stripes{
      shared_,
      std::move(data),
      [this]() STDCHK_REQUIRES(engine_lock) { return state_.registration.client; },
      [this](msg::Request request, std::function<void(rpc::Answer)> done)
          STDCHK_REQUIRES(engine_lock) { call(std::move(request), std::move(done)); },
      submit,
      run_later};
  return std::make_unique<Reader>(
      Reader::Host{shared_, maps_, clock(), submit, run_later, read_later,
                   state_.registration.pool.drain_directory, hasher_.sealer()},
      std::move(stripes), std::move(memory), state_.registration.pool.chunk_bytes);
}

void Engine::on_benefactors(const std::vector<msg::BenefactorInfo>& benefactors) {
  peers_.update(benefactors);
  const Lock lock(shared_.mutex);
  for (const BenefactorId gone : state_.benefactors.update(benefactors)) {
    sessions_.each([gone](Session& session)
                       STDCHK_REQUIRES(engine_lock) { session.benefactor_gone(gone); });
  }
}

void Engine::on_invalidate(const msg::Invalidate& notice) {
  std::shared_ptr<CacheEvents> events;
  {
    const Lock lock(shared_.mutex);
    events = events_;
    for (const auto& entry : notice.entries)
      state_.metadata.forget_entry(entry.directory, entry.name);
    for (const FileId file : notice.files) state_.metadata.forget_file(file);
    for (const FileId file : notice.shared) maps_.set_shared(file, true);
    for (const SessionId id : notice.fenced) {
      if (const SessionPtr session = sessions_.find(id)) session->fenced();
    }
    if (notice.benefactors_changed) ask_benefactors();
    LeaseHolder* const holder = leases_.holder();
    if (holder != nullptr && !notice.recalled.empty()) holder->recalled(notice.recalled);
  }
  for (const auto& entry : notice.entries) {
    if (events->entry_changed) events->entry_changed(entry.directory, entry.name);
  }
  for (const FileId file : notice.files) {
    if (events->file_changed) events->file_changed(file);
  }
}

msg::WriterTotals Engine::writer_totals() {
  const Lock lock(shared_.mutex);
  return state_.counts.writers;
}

msg::ReaderTotals Engine::reader_totals() {
  const Lock lock(shared_.mutex);
  return state_.buffers.reader == nullptr ? msg::ReaderTotals{} : state_.buffers.reader->totals();
}

Figures Engine::figures() {
  Figures out;
  out.transports = peers_.figures();
  const Lock lock(shared_.mutex);
  out.totals = state_.counts.writers;
  out.recognised_bytes = hasher_.recognised_bytes();
  out.manager_up = state_.registration.manager_up;
  out.sessions = sessions_.size();
  out.reader_count = reader_count();
  out.window_waits = state_.counts.window_waits;
  out.window_wait_ns = static_cast<std::uint64_t>(state_.counts.window_waited.count());
  if (state_.buffers.window == nullptr) return out;
  const Window& window = *state_.buffers.window;
  out.chunk_bytes = window.chunk_bytes();
  out.window_slots = window.slot_count();
  out.window_free = window.free_count();
  out.window_filling = window.waiting_count();
  out.window_busy = window.busy_count();
  const Reader& reader = *state_.buffers.reader;
  out.reads = reader.totals();
  out.cache_reads = reader.counts().given;
  out.cache_fetches = reader.counts().fetched;
  out.cache_ahead = reader.counts().ahead;
  return out;
}

bool Engine::relieve_window() {
  Window& window = *state_.buffers.window;
  if (window.free_count() > 0) return false;
  Slot* oldest = window.oldest_waiting();
  if (oldest == nullptr) return false;
  // Busy slots become free when they are stored; sealing a slot early costs an additional chunk.
  if (window.waiting_count() * 2 < window.slot_count() && window.busy_count() > 0) return false;
  const SessionPtr owner = sessions_.find(SessionId{oldest->owner});
  STDCHK_ASSERT(owner != nullptr);
  owner->cutter().seal_early(*oldest);
  return window.free_count() > 0;
}

// ---- work for the reactor ---------------------------------------------------------------------

/// Starts the collected work. This is the one place where work leaves the lock.
void Engine::pump() {
  WorkQueue::Batch batch;
  {
    const Lock lock(shared_.mutex);
    maps_.collect();
    batch = queue_.take();
    for (Work::Call& call : batch.calls) sessions_.follow(call);
  }
  for (auto& planned : batch.planned.write) {
    ChunkWrite& write = *planned;
    write.self = std::move(planned);
    peers_.submit(write);
  }
  for (OutChunkPtr& chunk : batch.planned.checksum) {
    Lock lock(shared_.mutex);
    hasher_.finish_checksum(lock, std::move(chunk));
  }
  start_reads(batch.reads);
  send(std::move(batch.calls));
  for (Work::Call& call : batch.planned.calls) {
    // A writer repeats its request for space, so this deadline may be short.
    const bool place = std::holds_alternative<msg::Place>(call.request);
    const Duration deadline = place ? limits::kCallDeadline : limits::kManagerDeadline;
    manager_.call(std::move(call.request), deadline, std::move(call.done), std::move(call.may_go));
  }
  for (Work::Search& search : batch.planned.search) hasher_.search_later(std::move(search));
  for (auto& chunks : batch.planned.hash) hasher_.hash_later(std::move(chunks));
  for (auto& work : batch.executor_work) executor_.run(std::move(work));
  for (auto& work : batch.file_work) files_.run(std::move(work));
}

/// Sends requests that are not of a session. A request waits for the next manager. While the
/// manager is silent, only closes do: calls in one directory queue in the kernel without a
/// deadline, and their waits would add up.
void Engine::send(std::vector<Work::Call> calls) {
  for (Work::Call& call : calls) {
    const bool close = std::holds_alternative<msg::CloseSession>(call.request);
    const bool waits = close || !manager_.silent();
    manager_.call(std::move(call.request), waits ? limits::kManagerDeadline : Duration::zero(),
                  std::move(call.done), std::move(call.may_go), std::move(call.late));
  }
  manager_.send_held();
}

/// Starts reads. When this thread copies the bytes itself, the remaining reads wait for the next
/// pump(). So the reader uses the bytes while the processor's cache has them.
void Engine::start_reads(const std::vector<Transfer*>& transfers) {
  for (auto at = transfers.begin(); at != transfers.end();) {
    Transfer& transfer = **at++;
    peers_.submit(transfer);
    if (!transfer.moved_here || at == transfers.end()) continue;
    const Lock lock(shared_.mutex);
    return queue_.read_first({at, transfers.end()});
  }
}

}  // namespace stdchk::client
