#include "client/engine/engine.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/chunk/extent_header.h"
#include "core/policy/image_name.h"

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;
constexpr std::uint64_t kFirstImageGrant = 2 * limits::kGrantBytesDefault;
constexpr std::size_t kLostMax = 65536;  ///< files whose lost early closes are remembered
/// When reached, everything learned about naming is forgotten.
constexpr std::size_t kSeriesMax = 65536;

}  // namespace

Engine::Engine(Reactor& reactor, transport::Endpoint& control,
               std::vector<transport::Endpoint*> data, Executor& executor, FileExecutor& files,
               Config config)
    : reactor_(reactor),
      data_(std::move(data)),
      executor_(executor),
      files_(files),
      config_(std::move(config)),
      metadata_(reactor.clock()),
      maps_(
          shared_, [this] { return client_; },
          [this](msg::Request request, MapStore::Callback done, MapStore::Callback late) {
            call(std::move(request), std::move(done), std::move(late));
          },
          [this] { (void)reactor_.post([this] { pump(); }); }),
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
          *this) {
  if (config_.key.has_value()) sealer_.emplace(*config_.key);
  STDCHK_ASSERT(sealer_.has_value() || !config_.encrypts);
}

Engine::~Engine() {
  reactor_.cancel(watch_);
  close_links();
  // Sessions refer to the window, and fetches to the cache's memory: both go first.
  kicked_.clear();
  sessions_by_id_.clear();
  for (const auto& [file, session] : sessions_) session->let_go();
  sessions_.clear();
  executor_work_.clear();
  file_work_.clear();
  reader_.reset();
}

void Engine::start() {
  manager_.start();
  watch_manager();
}

/// Every 20 ms, shows the state of the link to the manager to the applications' threads. Takes the
/// work along for which wake() found no room in the reactor's queue.
void Engine::watch_manager() {
  bool left_behind = false;
  {
    const Lock lock(shared_.mutex);
    left_behind = std::exchange(wake_failed_, false);
    manager_up_ = manager_.registered();
    if (!manager_up_ && manager_.last_error().where[0] != '\0') {
      manager_error_ = manager_.last_error();
      if (!ready_->done() && retry_class(manager_error_.code) == Retry::kNo) {
        ready_->status = fail(manager_error_);
        shared_.changed.notify_all();
      }
    }
    if (manager_up_ && std::exchange(benefactors_unknown_, false)) ask_benefactors();
  }
  if (left_behind) pump();
  watch_ = reactor_.schedule_after(20ms, [this] { watch_manager(); });
}

/// Fetches the list of benefactors. watch_manager() repeats a call that failed, because the manager
/// announces each change only once.
void Engine::ask_benefactors() {
  call(msg::ListBenefactors{}, [this](rpc::Answer answer) {
    if (!answer.has_value()) {
      benefactors_unknown_ = true;
    } else if (auto* reply = std::get_if<msg::ListBenefactors::Reply>(&*answer)) {
      on_benefactors(reply->benefactors);
    }
  });
}

void Engine::begin_stop() {
  const Lock lock(shared_.mutex);
  for (const auto& [file, session] : sessions_) {
    if (!session->ending()) session->abort(Code::kCancelled);
  }
}

void Engine::close_links() {
  manager_.stop();
  peers_.close();
}

void Engine::on_registered(const msg::RegisterClient::Reply& reply, bool same) {
  peers_.set_client(reply.client);
  bool first = false;
  {
    const Lock lock(shared_.mutex);
    client_ = reply.client;
    manager_up_ = true;
    first = !ready_->done();
    if (first) {
      pool_ = reply.config;
      if (config_.chunk_bytes != 0) pool_.chunk_bytes = config_.chunk_bytes;
      if (config_.naming.has_value()) pool_.naming = *config_.naming;
      if (config_.content_cuts.has_value()) {
        pool_.content_cuts = *config_.content_cuts;
        // A client that asks for a way of cutting wants names too, unless it says otherwise.
        if (!config_.naming && pool_.naming == Naming::kOff) pool_.naming = Naming::kAuto;
      }
    }
    if (!same) {
      metadata_.forget_all();
      maps_.forget_pins();
      // In the same epoch, the client's lease ran out and the manager has given up its sessions. A
      // manager of another epoch lets sessions resume.
      const bool ended = reply.epoch == epoch_;
      for (const auto& [file, session] : sessions_) {
        ended ? session->fenced() : session->manager_changed();
      }
    }
    epoch_ = reply.epoch;
  }
  // make_buffers() drops transports that cannot register the buffers. Links come after it.
  const Status made = first ? make_buffers() : Status{};
  on_benefactors(reply.benefactors);
  if (!first) return;
  const Lock lock(shared_.mutex);
  ready_->status = made;
  shared_.changed.notify_all();
}

Status Engine::make_buffers() {
  const std::uint32_t chunk = pool_.chunk_bytes;
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
  window_memory_ = std::move(window_memory);
  window_ = std::make_unique<Window>(std::move(window));
  const auto submit = [this](Transfer& transfer) {
    transfers_.push_back(&transfer);
    wake();
  };
  const auto run_later = [this](std::function<void()> work) {
    executor_work_.push_back(std::move(work));
    wake();
  };
  const auto read_later = [this](FileWork work) {
    file_work_.push_back(std::move(work));
    wake();
  };
  StripeReader::Host stripes{shared_,
                             data,
                             [this] { return client_; },
                             [this](msg::Request request, std::function<void(rpc::Answer)> done) {
                               call(std::move(request), std::move(done));
                             },
                             submit,
                             run_later};
  reader_ = std::make_unique<Reader>(
      Reader::Host{shared_, maps_, clock(), submit, run_later, read_later, pool_.drain_directory,
                   sealer_.has_value() ? &*sealer_ : nullptr},
      std::move(stripes), std::move(cache_memory), chunk);
  return {};
}

void Engine::on_benefactors(const std::vector<msg::BenefactorInfo>& benefactors) {
  peers_.update(benefactors);
  const Lock lock(shared_.mutex);
  std::set<BenefactorId> listed;
  answering_.clear();
  arena_bytes_total_ = 0;
  for (const msg::BenefactorInfo& info : benefactors) {
    if (info.state == msg::BenefactorState::kGone) continue;
    listed.insert(info.id);
    if (info.state == msg::BenefactorState::kAlive) answering_.insert(info.id);
    arena_bytes_total_ += info.arena_bytes;
  }
  for (const BenefactorId known : known_benefactors_) {
    if (listed.contains(known)) continue;
    for (const auto& [file, session] : sessions_) session->benefactor_gone(known);
  }
  known_benefactors_ = std::move(listed);
}

void Engine::on_invalidate(const msg::Invalidate& notice) {
  std::shared_ptr<CacheEvents> events;
  {
    const Lock lock(shared_.mutex);
    events = events_;
    for (const auto& entry : notice.entries) metadata_.forget_entry(entry.directory, entry.name);
    for (const FileId file : notice.files) metadata_.forget_file(file);
    for (const SessionId id : notice.fenced) {
      const auto session = sessions_by_id_.find(id);
      if (session != sessions_by_id_.end()) session->second->fenced();
    }
    if (notice.benefactors_changed) ask_benefactors();
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
  return totals_;
}

msg::ReaderTotals Engine::reader_totals() {
  const Lock lock(shared_.mutex);
  return reader_ == nullptr ? msg::ReaderTotals{} : reader_->totals();
}

Figures Engine::figures() {
  Figures out;
  out.transports = peers_.figures();
  const Lock lock(shared_.mutex);
  out.totals = totals_;
  out.recognised_bytes = recognised_bytes_;
  out.manager_up = manager_up_;
  out.sessions = sessions_.size();
  out.reader_count = reader_count();
  out.window_waits = window_waits_;
  out.window_wait_ns = static_cast<std::uint64_t>(window_waited_.count());
  if (window_ == nullptr) return out;
  out.chunk_bytes = window_->chunk_bytes();
  out.window_slots = window_->slot_count();
  out.window_free = window_->free_count();
  out.window_filling = window_->waiting_count();
  out.window_busy = window_->busy_count();
  out.reads = reader_->totals();
  out.cache_reads = reader_->counts().given;
  out.cache_fetches = reader_->counts().fetched;
  out.cache_ahead = reader_->counts().ahead;
  return out;
}

SessionPtr Engine::session(FileId file) const {
  const auto found = sessions_.find(file);
  return found == sessions_.end() ? nullptr : found->second;
}

std::shared_ptr<Engine::Opening> Engine::open_session(msg::OpenSession request) {
  auto opening = std::make_shared<Opening>();
  request.client = client_;
  request.copies = config_.copies;
  request.waits_for_copies = config_.waits_for_copies;
  auto naming = series_of(request);
  // Space asked for at once: much for an image, one chunk for another new file. Writers of existing
  // files get space when they need it.
  if (parse_image_name(request.name).has_value()) {
    request.want_bytes =
        std::clamp(arena_bytes_total_ / 16, extent_bytes(window_->chunk_bytes()), kFirstImageGrant);
  } else if (!request.file || request.truncate) {
    request.want_bytes = extent_bytes(window_->chunk_bytes());
  }
  call(
      request,
      [this, wanted = std::weak_ptr(opening), request, naming](rpc::Answer answer) {
        const Lock lock(shared_.mutex);
        if (const auto awaited = wanted.lock()) {
          on_opened(*awaited, request, naming, std::move(answer));
        } else {
          opened_late(answer);
        }
        shared_.changed.notify_all();
      },
      [this](const rpc::Answer& answer) {
        const Lock lock(shared_.mutex);
        opened_late(answer);
      });
  return opening;
}

/// Returns what was learned about naming from the same series: the images A.Ni of a directory, its
/// other files together, or the file itself.
std::shared_ptr<SeriesNaming> Engine::series_of(const msg::OpenSession& request) {
  if (series_.size() >= kSeriesMax) series_.clear();
  std::pair<FileId, std::string> key{request.file ? request.file : request.parent, {}};
  if (const auto image = parse_image_name(request.name); image.has_value()) {
    key.second = image->application + ".N" + std::to_string(image->node);
  }
  auto& series = series_[key];
  if (series == nullptr) {
    // A folder's policy may name chunks although the pool's setting is off.
    const Naming mode = pool_.naming == Naming::kOff ? Naming::kAuto : pool_.naming;
    series = std::make_shared<SeriesNaming>(mode, config_.naming_judged_bytes);
  }
  return series;
}

/// Closes the session of an opener that has given up. Otherwise nobody would end it, and its empty
/// file would stay.
void Engine::opened_late(const rpc::Answer& answer) {
  if (!answer.has_value()) return;
  if (const auto* reply = std::get_if<msg::OpenSession::Reply>(&*answer)) {
    close_unused(reply->session);
  }
}

void Engine::close_unused(SessionId session) {
  call(msg::CloseSession{session, false, 0, false}, [](rpc::Answer) {});
}

void Engine::on_opened(Opening& opening, const msg::OpenSession& request,
                       std::shared_ptr<SeriesNaming> naming, rpc::Answer answer) {
  if (!answer.has_value()) {
    opening.status = fail(answer.error().error);
    return;
  }
  auto* reply = std::get_if<msg::OpenSession::Reply>(&*answer);
  if (reply == nullptr) {
    opening.status = fail(Code::kMalformed, "client.open");
    return;
  }
  opening.created = reply->created;
  opening.attributes = reply->attributes;
  opening.status = Status{};
  const FileId file = reply->attributes.id;
  if (SessionPtr other = session(file); other != nullptr && !other->ending()) {
    // Two threads have opened the file at the same time: both use the session of the first.
    close_unused(reply->session);
    if (request.truncate) {
      const Status cut = other->truncate(0);
      if (!cut.has_value()) opening.status = fail(cut.error());
    }
    if (opening.status->has_value()) {
      ++other->openers;
      opening.session = std::move(other);
    }
    return;
  }
  auto session = std::make_shared<Session>(static_cast<SessionHost&>(*this), request,
                                           std::move(*reply), std::move(naming));
  session->count_call();
  session->openers = 1;
  sessions_[file] = session;
  sessions_by_id_[session->id()] = session;
  opening.session = std::move(session);
}

void Engine::relieve_window() {
  if (window_->free_count() > 0) return;
  Slot* oldest = window_->oldest_waiting();
  if (oldest == nullptr) return;
  // Busy slots become free when they are stored; sealing a slot early costs an additional chunk.
  if (window_->waiting_count() * 2 < window_->slot_count() && window_->busy_count() > 0) return;
  const auto owner = sessions_by_id_.find(SessionId{oldest->owner});
  STDCHK_ASSERT(owner != sessions_by_id_.end());
  owner->second->cutter().seal_early(*oldest);
}

void Engine::committed(const msg::Commit::Reply& reply) {
  metadata_.put(reply.attributes);
  if (reply.directory.id) metadata_.put(reply.directory);
}

void Engine::ended(Session& session) {
  const SessionPtr keep = session.shared_from_this();
  sessions_by_id_.erase(session.id());
  const auto found = sessions_.find(session.file());
  if (found != sessions_.end() && found->second == keep) sessions_.erase(found);
  // After a commit the cached attributes are right. After an error they may describe bytes that
  // were dropped.
  if (session.error().has_value()) metadata_.forget_file(session.file());
}

void Engine::promise_broken(const Session& session) {
  if (lost_.size() < kLostMax) lost_.insert_or_assign(session.file(), *session.error());
}

std::optional<Error> Engine::take_lost(FileId file) {
  const auto lost = lost_.extract(file);
  return lost.empty() ? std::nullopt : std::optional(lost.mapped());
}

// ---- work for the reactor ---------------------------------------------------------------------

void Engine::call(msg::Request request, std::function<void(rpc::Answer)> done,
                  std::function<void(rpc::Answer)> late) {
  outbox_.push_back({std::move(request), std::move(done), {}, std::move(late)});
  wake();
}

void Engine::kick(Session& session) {
  if (!std::exchange(session.kicked, true)) kicked_.push_back(session.shared_from_this());
  wake();
}

void Engine::kick_after(Session& session, Duration delay) {
  // Only the reactor's thread sets timers, and only that thread calls this function.
  reactor_.schedule_after(delay, [this, weak = session.weak_from_this()] {
    const Lock lock(shared_.mutex);
    if (const SessionPtr kicked = weak.lock()) kick(*kicked);
  });
}

void Engine::wake() {
  if (woken_) return;
  // When the queue of posts is full, watch_manager() calls pump() within 20 ms.
  woken_ = reactor_.post([this] { pump(); }).has_value();
  wake_failed_ = wake_failed_ || !woken_;
}

void Engine::pump() {
  Work work;
  std::vector<Work::Call> calls;
  std::vector<Transfer*> transfers;
  std::vector<std::function<void()>> executor_work;
  std::vector<FileWork> file_work;
  {
    const Lock lock(shared_.mutex);
    woken_ = false;
    maps_.collect();
    for (const SessionPtr& session : std::exchange(kicked_, {})) {
      session->kicked = false;
      session->plan(work);
    }
    calls.swap(outbox_);
    for (Work::Call& one : calls) follow_pending(one);
    transfers.swap(transfers_);
    executor_work.swap(executor_work_);
    file_work.swap(file_work_);
  }
  for (auto& write : work.write) {
    ChunkWrite& one = *write;
    one.self = std::move(write);
    peers_.submit(one);
  }
  for (OutChunkPtr& chunk : work.checksum) {
    Lock lock(shared_.mutex);
    finish_checksum(lock, std::move(chunk));
  }
  start_reads(transfers);
  // A request waits for the next manager. While the manager is silent, only closes do: calls in one
  // directory queue in the kernel without a deadline, and their waits would add up.
  for (Work::Call& one : calls) {
    const bool close = std::holds_alternative<msg::CloseSession>(one.request);
    const bool waits = close || !manager_.silent();
    manager_.call(std::move(one.request), waits ? limits::kManagerDeadline : Duration::zero(),
                  std::move(one.done), std::move(one.may_go), std::move(one.late));
  }
  manager_.send_held();
  for (Work::Call& one : work.calls) {
    // A writer repeats its request for space, so this deadline may be short.
    const bool place = std::holds_alternative<msg::Place>(one.request);
    const Duration deadline = place ? limits::kCallDeadline : limits::kManagerDeadline;
    manager_.call(std::move(one.request), deadline, std::move(one.done));
  }
  for (Work::Search& search : work.search) search_later(std::move(search));
  for (auto& chunks : work.hash) hash_later(std::move(chunks));
  for (auto& one : executor_work) executor_.run(std::move(one));
  for (auto& one : file_work) files_.run(std::move(one));
}

/// Starts reads. When this thread copies the bytes itself, the remaining reads wait for the next
/// pump(). So the reader uses the bytes while the processor's cache has them.
void Engine::start_reads(const std::vector<Transfer*>& transfers) {
  for (auto at = transfers.begin(); at != transfers.end();) {
    Transfer& transfer = **at++;
    peers_.submit(transfer);
    if (!transfer.moved_here || at == transfers.end()) continue;
    const Lock lock(shared_.mutex);
    transfers_.insert(transfers_.begin(), at, transfers.end());
    return wake();
  }
}

/// Looks for boundaries in a slot. Then hashes the chunks that end there: this processor's cache
/// still has the bytes.
void Engine::search_later(Work::Search search) {
  executor_.run([this, search = std::move(search)]() mutable {
    search.scan->find(search.session->cutter().boundaries());
    std::vector<OutChunkPtr> chunks;
    {
      const Lock lock(shared_.mutex);
      chunks = search.session->cutter().scanned(*search.scan);
      search = {};
    }
    hash(std::move(chunks));
  });
}

void Engine::hash_later(std::vector<OutChunkPtr> chunks) {
  executor_.run([this, chunks = std::move(chunks)]() mutable { hash(std::move(chunks)); });
}

/// Computes CRCs, and names where wanted, and encrypts. All chunks must be of one session.
void Engine::hash(std::vector<OutChunkPtr> chunks) {
  if (chunks.empty()) return;
  for (const OutChunkPtr& chunk : chunks) checksum(*chunk);
  std::vector<OutChunkPtr> to_name;
  Lock lock(shared_.mutex);
  const SessionPtr session = chunks.front()->session;
  for (const OutChunkPtr& chunk : chunks) {
    if (session->naming().names(chunk->plain_crc)) to_name.push_back(chunk);
    chunk->encrypted = config_.encrypts;
  }
  if (!to_name.empty()) name(lock, to_name);
  if (config_.encrypts) {
    lock.unlock();
    for (const OutChunkPtr& chunk : chunks) seal(*chunk);
    lock.lock();
  }
  for (const OutChunkPtr& chunk : chunks) session->hashed(chunk);
  to_name.clear();
  chunks.clear();
}

void Engine::checksum(OutChunk& chunk) {
  if (chunk.has_crc) return;
  const ChunkPieces content = chunk.content();
  chunk.plain_crc = chunk.chunk.crc = crc32c(crc32c(0, content[0]), content[1]);
  chunk.has_crc = true;
}

void Engine::finish_checksum(Lock& lock, OutChunkPtr chunk) {
  if (chunk == nullptr) return;
  const SessionPtr session = chunk->session;
  if (config_.encrypts || session->naming().names_all()) {
    return session->hashes().add(std::move(chunk));
  }
  lock.unlock();
  checksum(*chunk);
  lock.lock();
  if (session->naming().names(chunk->plain_crc)) return session->hashes().add(std::move(chunk));
  session->hashed(chunk);
}

/// Encrypts the chunk in its place. From then on its name and CRC describe the stored bytes.
void Engine::seal(OutChunk& chunk) const {
  std::array<MutableByteSpan, 2> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const Segment& segment = chunk.segments[i];
    if (segment.slot != nullptr) {
      bytes[i] = {segment.slot->data + segment.offset, segment.length};
    }
  }
  chunk.chunk.name = sealer_->seal(bytes, chunk.chunk.name);
  chunk.chunk.crc = crc32c(crc32c(0, bytes[0]), bytes[1]);
}

/// Names the chunks. Hashes only contents that `names_` does not know. Releases the lock meanwhile.
void Engine::name(Lock& lock, std::span<const OutChunkPtr> chunks) {
  lock.unlock();
  const Duration before = thread_time();
  std::vector<ContentTag> tags;
  tags.reserve(chunks.size());
  for (const OutChunkPtr& chunk : chunks) tags.push_back(tagger_.tag(chunk->content()));
  lock.lock();
  std::vector<std::size_t> unknown;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const auto known = names_.find(tags[i]);
    if (!known.has_value()) {
      unknown.push_back(i);
      continue;
    }
    chunks[i]->chunk.name = *known;
    recognised_bytes_ += chunks[i]->chunk.length;
  }
  if (!unknown.empty()) {
    std::unique_ptr<Namer> namer;
    if (!namers_.empty()) {
      namer = std::move(namers_.back());
      namers_.pop_back();
    }
    lock.unlock();
    if (namer == nullptr) namer = std::make_unique<Namer>();
    std::vector<ChunkPieces> contents;
    contents.reserve(unknown.size());
    for (const std::size_t i : unknown) contents.push_back(chunks[i]->content());
    std::vector<ChunkName> names(unknown.size());
    namer->name(contents, names);
    lock.lock();
    for (std::size_t k = 0; k < unknown.size(); ++k) {
      chunks[unknown[k]]->chunk.name = names[k];
      names_.learn(tags[unknown[k]], names[k]);
    }
    namers_.push_back(std::move(namer));
  }
  totals_.naming_ns += static_cast<std::uint64_t>((thread_time() - before).count());
}

}  // namespace stdchk::client
