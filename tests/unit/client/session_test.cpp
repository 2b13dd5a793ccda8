// Tests a session; the test plays the manager and the transport.
#include "client/write/session.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "tests/support/catch.h"

namespace stdchk::client {
namespace {

constexpr std::uint32_t kChunk = 65536;
constexpr BenefactorId kBenefactor{1};
constexpr FileId kFile{7};

struct Host final : SessionHost {
  explicit Host(std::size_t slots = 4, bool by_content = false)
      : memory_(std::move(*Memory::create(Window::memory_bytes(slots * kChunk, kChunk), {}))),
        window_(std::move(*Window::create(
            memory_->bytes().first(Window::memory_bytes(slots * kChunk, kChunk)), kChunk))),
        by_content_(by_content) {}
  Shared& shared() override { return shared_; }
  Window& window() override { return window_; }
  const Memory& window_memory() override { return *memory_; }
  ManualClock& clock() override { return clock_; }
  bool names_chunks() const override { return true; }
  bool content_cuts() const override { return by_content_; }
  std::uint64_t arena_bytes_total() const override { return limits::kMiB; }
  bool is_alive(BenefactorId) const override { return true; }
  MapStore& maps() override { return maps_; }
  ClientId client() const override { return ClientId{3}; }
  msg::WriterTotals& totals() override { return totals_; }
  void schedule(Session&) override {}
  void schedule_later(Session&) override {}
  void schedule_after(Session&, Duration delay) override { timers.push_back(clock_.now() + delay); }
  std::function<bool()> may_commit() override {
    return [this] { return lets_commits_go; };
  }
  void committed(const msg::Commit::Reply&) override {}
  void ended(Session&) override {}
  void promise_broken(const Session&) override {}

  Time clock_now() const { return clock_.now(); }
  void pass(Duration time) { clock_.advance(time); }

  std::vector<Time> timers;
  bool lets_commits_go = true;

 private:
  Shared shared_;
  std::unique_ptr<Memory> memory_;
  Window window_;
  const bool by_content_;
  ManualClock clock_;
  MapStore maps_{shared_, [] { return ClientId{3}; }, [](const auto&...) {}, [] {}};
  msg::WriterTotals totals_;
};

/// The answer to the open of a new file.
struct NewFile {
  NewFile() {
    request.parent = kRootFile;
    request.name = "a.N0.T1";
    opened.session = SessionId{5};
    opened.attributes.id = kFile;
    opened.grants = {Grant{GrantId{9}, kBenefactor, 0, limits::kMiB}};
  }
  std::shared_ptr<Session> open(SessionHost& host, Naming naming) const {
    return std::make_shared<Session>(host, request, opened, std::make_shared<SeriesNaming>(naming));
  }

  msg::OpenSession request;
  msg::OpenSession::Reply opened;
};

/// A session of a new file. Its bytes are stored, and its commit is in flight when another manager
/// takes over.
struct Interrupted {
  explicit Interrupted(Version base = 0, bool truncate = false) {
    NewFile file;
    file.request.truncate = truncate;
    file.opened.opened = 41;
    file.opened.attributes.version = base;
    session = file.open(host, Naming::kOff);
    {
      const Lock lock(host.shared().mutex);
      std::size_t length = 1000;
      const auto slot = session->begin_write(0, length);
      REQUIRE(slot);
      std::memset((*slot)->data, 1, length);
      REQUIRE(session->end_write(**slot, 0, length) == nullptr);
      const auto begun = session->start_commit(true);
      REQUIRE(begun);
      commit = *begun;
    }
    store();
    sent = plan();
    REQUIRE(sent.size() == 1);
    REQUIRE(std::holds_alternative<msg::Commit>(sent[0].request));
    const Lock lock(host.shared().mutex);
    session->manager_changed();
  }
  ~Interrupted() {
    const Lock lock(host.shared().mutex);
    session->let_go();
  }
  /// Hashes and writes planned chunks, as hash threads and the transport do.
  void store() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    for (const auto& group : work.hash) {
      for (const OutChunkPtr& chunk : group) session->hashed(chunk);
    }
    Work next;
    session->plan(next);
    REQUIRE(next.write.size() == 1);
    session->writer().written(*next.write[0], {});
  }
  std::vector<Work::Call> plan() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    return std::move(work.calls);
  }
  /// Ends the commit's call with its link; the session then asks to resume.
  Work::Call resume() {
    sent[0].done(tl::unexpected(rpc::Failure{{Code::kFenced, 0, "test"}, {}, {}}));
    auto calls = plan();
    REQUIRE(calls.size() == 1);
    const auto* request = std::get_if<msg::ResumeSession>(&calls[0].request);
    REQUIRE(request != nullptr);
    CHECK(request->stored.size() == 1);
    return std::move(calls[0]);
  }
  void lose_benefactor() {
    const Lock lock(host.shared().mutex);
    session->benefactor_gone(kBenefactor);
  }

  Host host;
  std::shared_ptr<Session> session;
  CompletionPtr commit;
  std::vector<Work::Call> sent;
};

/// A session with content-defined cuts. The file's parts arrive in any order.
struct OutOfOrder {
  explicit OutOfOrder(std::size_t slots = 16) : host(slots, true) {
    session = NewFile().open(host, Naming::kOn);
  }
  ~OutOfOrder() {
    const Lock lock(host.shared().mutex);
    session->let_go();
  }
  /// Writes bytes [from, to) of a part.
  void write(std::uint64_t part, std::size_t from = 0, std::size_t to = kChunk) {
    const Lock lock(host.shared().mutex);
    std::size_t length = to - from;
    const std::uint64_t offset = part * kChunk + from;
    const auto slot = session->begin_write(offset, length);
    REQUIRE(slot);
    REQUIRE(length == to - from);
    Prng random(part);
    for (std::size_t i = from; i < to; ++i)
      (*slot)->data[i] = static_cast<std::byte>(random.next());
    REQUIRE(session->end_write(**slot, offset, length) == nullptr);
  }
  /// Whether a write to that part would block. If not, begins the part.
  bool would_wait(std::uint64_t part) {
    const Lock lock(host.shared().mutex);
    std::size_t length = 1;
    const auto slot = session->begin_write(part * kChunk, length);
    if (slot) return session->end_write(**slot, part * kChunk, 0) != nullptr;
    return slot.error().code == Code::kWouldBlock;
  }
  /// The parts that were cut since the last call, in order.
  std::vector<std::uint64_t> cut() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    std::vector<std::uint64_t> parts;
    for (const Work::Search& search : work.search) {
      for (const auto& part : search.scan->parts) parts.push_back(part->segment.slot->part);
      scans.push_back(search.scan);
    }
    return parts;
  }
  /// The number of timers that expire after `delay`.
  auto timers_in(Duration delay) const {
    return std::count(host.timers.begin(), host.timers.end(), host.clock_now() + delay);
  }
  /// Marks the chunks of all cut parts as stored.
  void store() {
    const Lock lock(host.shared().mutex);
    for (const ScanPtr& scan : scans) {
      scan->find(session->cutter().boundaries());
      for (const OutChunkPtr& chunk : session->cutter().scanned(*scan)) session->hashed(chunk);
    }
    Work work;
    session->plan(work);
    REQUIRE_FALSE(work.write.empty());
    for (const auto& write : work.write) session->writer().written(*write, {});
  }

  Host host;
  std::shared_ptr<Session> session;
  std::vector<ScanPtr> scans;
};

/// A session that writes each chunk to two places.
struct TwoPlaces {
  /// Makes `domains` domains with one benefactor each. The copies of a chunk may lie in any pair of
  /// domains.
  explicit TwoPlaces(std::uint64_t domains = 3) {
    NewFile file;
    file.request.waits_for_copies = true;
    file.opened.places = 2;
    file.opened.grants.clear();
    for (std::uint64_t i = 1; i <= domains; ++i) file.opened.grants.push_back(grant(i, i, 1));
    session = file.open(host, Naming::kOff);
  }
  ~TwoPlaces() {
    const Lock lock(host.shared().mutex);
    session->let_go();
  }
  static Grant grant(std::uint64_t id, std::uint64_t benefactor, std::uint64_t first) {
    return {GrantId{id},  BenefactorId{benefactor}, id * limits::kMiB,
            limits::kMiB, BenefactorId{first},      benefactor};
  }
  void write(std::size_t length) {
    const Lock lock(host.shared().mutex);
    const auto slot = session->begin_write(0, length);
    REQUIRE(slot);
    std::memset((*slot)->data, 1, length);
    chunk = session->end_write(**slot, 0, length);
    REQUIRE(chunk != nullptr);
    session->hashed(chunk);
  }
  std::vector<std::unique_ptr<ChunkWrite>> writes() {
    const Lock lock(host.shared().mutex);
    Work work;
    session->plan(work);
    for (auto& call : work.calls) calls.push_back(std::move(call));
    return std::move(work.write);
  }
  void ended(const ChunkWrite& write, const Status& status) {
    const Lock lock(host.shared().mutex);
    session->writer().written(write, status);
  }
  void lose(BenefactorId benefactor) {
    const Lock lock(host.shared().mutex);
    session->benefactor_gone(benefactor);
  }
  /// The chunks that the session reports as stored to another manager.
  std::vector<Chunk> resumes_with() {
    {
      const Lock lock(host.shared().mutex);
      session->manager_changed();
    }
    for (auto& call : std::exchange(calls, {})) {
      call.done(tl::unexpected(rpc::Failure{{Code::kManagerLost, 0, "test"}, {}, {}}));
    }
    (void)writes();
    const auto* request = std::get_if<msg::ResumeSession>(&calls.at(0).request);
    REQUIRE(request != nullptr);
    CHECK(request->waits_for_copies);
    return request->stored;
  }
  /// The chunk's places, as the commit reports them.
  std::vector<Extent> committed() {
    {
      const Lock lock(host.shared().mutex);
      REQUIRE(session->start_commit(false));
    }
    calls.clear();
    (void)writes();
    for (const auto& call : calls) {
      const auto* commit = std::get_if<msg::Commit>(&call.request);
      if (commit != nullptr) return commit->written.chunks.at(0).copies;
    }
    FAIL("no commit");
    return {};
  }

  Host host;
  std::shared_ptr<Session> session;
  OutChunkPtr chunk;
  std::vector<Work::Call> calls;
};

using Parts = std::vector<std::uint64_t>;

msg::ResumeSession::Reply resumed(bool committed) {
  msg::ResumeSession::Reply reply;
  reply.committed = committed;
  reply.attributes.id = kFile;
  reply.attributes.version = committed ? 1 : 0;
  return reply;
}

}  // namespace

TEST_CASE("a commit that was done before a restart is done, whatever has become of a benefactor") {
  Interrupted pool;
  pool.lose_benefactor();
  CHECK_FALSE(pool.commit->done());
  pool.resume().done(msg::Reply{resumed(true)});
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->has_value());
  CHECK(pool.session->attributes().version == 1);
}

TEST_CASE("only a commit waits for the changes of names before it") {
  Interrupted pool;
  REQUIRE(pool.sent[0].may_go);
  CHECK(pool.sent[0].may_go());
  pool.host.lets_commits_go = false;
  CHECK_FALSE(pool.sent[0].may_go());
  CHECK_FALSE(pool.resume().may_go);
}

TEST_CASE("a commit is not said to have failed when nobody knows") {
  Interrupted pool;
  pool.lose_benefactor();
  pool.resume().done(tl::unexpected(rpc::Failure{{Code::kDataLost, 0, "test"}, {}, {}}));
  (void)pool.plan();
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->error().code == Code::kFenced);
}

TEST_CASE("a session that goes on says whether it replaces all, and when it was opened") {
  const auto asked = [](Version base, bool truncate) {
    Interrupted pool(base, truncate);
    auto request = std::get<msg::ResumeSession>(pool.resume().request);
    CHECK(request.opened == 41);
    CHECK(request.base == base);
    return request.truncated;
  };
  CHECK(asked(3, true));
  CHECK_FALSE(asked(3, false));
  CHECK_FALSE(asked(0, true));  // a new file replaces nothing
}

TEST_CASE("a session tells another manager what has become of a new file") {
  Interrupted pool;
  {
    const Lock lock(pool.host.shared().mutex);
    CHECK(pool.session->resumer().is_unknown());
    CHECK(pool.session->resumer().parent() == kRootFile);
    CHECK(pool.session->resumer().name() == "a.N0.T1");
    pool.session->resumer().renamed(FileId{3}, "b");
    CHECK(pool.session->resumer().parent() == FileId{3});
    CHECK(pool.session->resumer().name() == "b");
    msg::SetAttributes change;
    change.mask = static_cast<std::uint32_t>(msg::SetMask::kMode) |
                  static_cast<std::uint32_t>(msg::SetMask::kMtime);
    change.mode = 0600;
    change.uid = 9;  // not in the mask
    change.mtime_ns = 2000;
    pool.session->resumer().changed(change);
    pool.session->resumer().changed(msg::SetXattr{{}, kFile, "user.a", "1"});
    pool.session->resumer().changed(msg::SetXattr{{}, kFile, "user.b", "2"});
    pool.session->resumer().changed(msg::SetXattr{{}, kFile, "user.a", {}, {}, true});
  }
  pool.sent[0].done(tl::unexpected(rpc::Failure{{Code::kFenced, 0, "test"}, {}, {}}));
  auto calls = pool.plan();
  REQUIRE(calls.size() == 1);
  const auto first = std::get<msg::ResumeSession>(calls[0].request);
  CHECK(first.renamed);
  CHECK(first.changed);
  CHECK(first.parent == FileId{3});
  CHECK(first.name == "b");
  CHECK(first.mode == 0600);
  CHECK(first.uid == 0);
  CHECK(first.mtime_ns == 2000);
  CHECK(first.xattrs == std::vector<std::pair<std::string, std::string>>{{"user.b", "2"}});
  CHECK_FALSE(first.last);
  CHECK(first.stored.empty());
  calls[0].done(msg::Reply{resumed(false)});
  calls = pool.plan();
  REQUIRE(calls.size() == 1);
  const auto second = std::get<msg::ResumeSession>(calls[0].request);
  CHECK(second.xattrs.empty());
  CHECK(second.stored.size() == 1);
  CHECK(second.last);
  calls[0].done(msg::Reply{resumed(false)});
  const Lock lock(pool.host.shared().mutex);
  CHECK_FALSE(pool.session->resumer().is_unknown());
}

TEST_CASE("a new file does not go on when nobody knows whether it was changed") {
  Interrupted pool;
  const Lock lock(pool.host.shared().mutex);
  pool.session->resumer().forbid_resume();
  pool.session->manager_changed();
  REQUIRE(pool.session->error());
  CHECK(pool.session->error()->code == Code::kFenced);
}

TEST_CASE("what was stored and not committed is lost with its benefactor") {
  Interrupted pool;
  pool.resume().done(msg::Reply{resumed(false)});
  CHECK_FALSE(pool.commit->done());
  pool.lose_benefactor();
  (void)pool.plan();
  REQUIRE(pool.commit->done());
  CHECK(pool.commit->status->error().code == Code::kDataLost);
}

TEST_CASE("a chunk in two places is stored when both are, and one of them may be lost") {
  TwoPlaces pool;
  pool.write(kChunk);
  auto writes = pool.writes();
  REQUIRE(writes.size() == 2);
  CHECK(writes[0]->at.benefactor != writes[1]->at.benefactor);
  pool.ended(*writes[0], {});
  CHECK(pool.host.window().free_count() == 3);  // the other write still reads from the slot
  pool.ended(*writes[1], {});
  CHECK(pool.host.window().free_count() == 4);
  pool.lose(writes[0]->at.benefactor);
  CHECK(pool.committed() == std::vector<Extent>{writes[1]->at});
  pool.lose(writes[1]->at.benefactor);
  CHECK(pool.session->error()->code == Code::kDataLost);
}

TEST_CASE("a place that fails is made up for in another domain, from the same slot") {
  TwoPlaces pool;
  pool.write(kChunk);
  auto writes = pool.writes();
  REQUIRE(writes.size() == 2);
  REQUIRE(writes[0]->at.benefactor == BenefactorId{1});
  pool.ended(*writes[0], {});
  pool.ended(*writes[1], fail(Code::kPeerLost, "test"));
  CHECK(pool.host.window().free_count() == 3);
  auto more = pool.writes();
  REQUIRE(more.size() == 1);
  CHECK(more[0]->at.benefactor != writes[0]->at.benefactor);
  CHECK(more[0]->at.benefactor != writes[1]->at.benefactor);
  pool.ended(*more[0], {});
  CHECK(pool.committed() == std::vector<Extent>{writes[0]->at, more[0]->at});
}

TEST_CASE("when its first place fails the manager is asked for one beside the other") {
  TwoPlaces pool;
  pool.write(kChunk);
  auto writes = pool.writes();
  REQUIRE(writes.size() == 2);
  pool.ended(*writes[0], fail(Code::kPeerLost, "test"));
  pool.ended(*writes[1], {});
  const BenefactorId left = writes[1]->at.benefactor;
  pool.calls.clear();
  CHECK(pool.writes().empty());
  REQUIRE(pool.calls.size() == 1);
  const auto& asked = std::get<msg::Place>(pool.calls[0].request);
  CHECK(asked.beside == std::vector<BenefactorId>{left});
  CHECK(asked.avoid == std::vector<BenefactorId>{BenefactorId{1}});
  CHECK(asked.want_bytes == extent_bytes(kChunk));
  std::vector<Extent> places{writes[1]->at};
  SECTION("which there is") {
    pool.calls[0].done(msg::Reply{msg::Place::Reply{{}, {pool.grant(7, 4, left.value)}}});
    auto more = pool.writes();
    REQUIRE(more.size() == 1);
    CHECK(more[0]->at.benefactor == BenefactorId{4});
    pool.ended(*more[0], {});
    places.push_back(more[0]->at);
  }
  SECTION("which there is not") {
    pool.calls[0].done(msg::Reply{msg::Place::Reply{}});
    CHECK(pool.writes().empty());
  }
  CHECK(pool.host.window().free_count() == 4);
  CHECK(pool.committed() == places);
}

TEST_CASE("a chunk is in one place where the manager has no space in another domain") {
  TwoPlaces pool(1);
  pool.write(kChunk);
  CHECK(pool.writes().empty());  // the session asks for more space first
  const auto* asked = std::get_if<msg::Place>(&pool.calls.at(0).request);
  REQUIRE(asked != nullptr);
  CHECK(asked->want_bytes >= 2 * extent_bytes(kChunk));
  CHECK(asked->beside.empty());
  SECTION("it says so") {
    pool.calls[0].done(msg::Reply{msg::Place::Reply{{}, {pool.grant(4, 1, 1)}}});
  }
  SECTION("it takes long to say so") { pool.host.pass(std::chrono::milliseconds(600)); }
  auto writes = pool.writes();
  REQUIRE(writes.size() == 1);
  pool.ended(*writes[0], {});
  CHECK(pool.committed() == std::vector<Extent>{writes[0]->at});
}

TEST_CASE("a manager that comes back hears of all places of a chunk") {
  TwoPlaces pool;
  pool.write(kChunk);
  auto writes = pool.writes();
  REQUIRE(writes.size() == 2);
  pool.ended(*writes[0], {});
  SECTION("once both are written") {
    pool.ended(*writes[1], {});
    const auto told = pool.resumes_with();
    REQUIRE(told.size() == 1);
    CHECK(told[0].copies == std::vector<Extent>{writes[0]->at, writes[1]->at});
  }
  SECTION("not of a chunk that lacks one") {
    pool.ended(*writes[1], fail(Code::kPeerLost, "test"));
    CHECK(pool.resumes_with().empty());
  }
}

TEST_CASE(
    "an open session gives back what it has not used for a second, and keeps what it has begun") {
  constexpr BenefactorId kOther{2};
  Host host;
  msg::OpenSession::Reply opened;
  opened.session = SessionId{5};
  opened.attributes.id = kFile;
  opened.grants = {Grant{GrantId{9}, kBenefactor, 0, limits::kMiB},
                   Grant{GrantId{10}, kOther, 0, limits::kMiB}};
  const auto session = std::make_shared<Session>(host, msg::OpenSession{}, opened,
                                                 std::make_shared<SeriesNaming>(Naming::kOff));
  Lock lock(host.shared().mutex);
  const auto plan = [&] {
    Work work;
    session->plan(work);
    return work;
  };
  std::size_t length = kChunk;
  const auto slot = session->begin_write(0, length);
  REQUIRE(slot);
  std::memset((*slot)->data, 1, length);
  const OutChunkPtr full = session->end_write(**slot, 0, length);
  REQUIRE(full != nullptr);
  session->hashed(full);
  Work work = plan();
  REQUIRE(work.write.size() == 1);
  const BenefactorId used = work.write[0]->at.benefactor;
  work.write[0]->self.reset();
  session->writer().written(*work.write[0], {});
  host.clock().advance(std::chrono::milliseconds(999));
  CHECK(plan().calls.empty());
  host.clock().advance(std::chrono::milliseconds(1));
  const auto calls = plan().calls;
  REQUIRE(calls.size() == 1);
  const auto& place = std::get<msg::Place>(calls[0].request);
  CHECK(place.returned == std::vector<GrantId>{used == kBenefactor ? GrantId{10} : GrantId{9}});
  CHECK(place.want_bytes == 0);
  lock.unlock();
  calls[0].done(msg::Reply{msg::Place::Reply{}});
  lock.lock();
  host.clock().advance(std::chrono::seconds(5));
  CHECK(plan().calls.empty());
  session->let_go();
}

TEST_CASE("a part that comes before the one in front of it is cut behind that one") {
  OutOfOrder file;
  file.write(0);
  CHECK(file.cut() == Parts{0});
  SECTION("of which nothing is there") {}
  SECTION("of which something is there") { file.write(1, 100, 200); }
  file.write(2);
  file.write(4);
  file.write(3);
  CHECK(file.cut().empty());
  file.write(1);
  CHECK(file.cut() == Parts{1, 2, 3, 4});
}

TEST_CASE("bytes behind a hole do not wait for it for long") {
  OutOfOrder file;
  file.write(5);
  CHECK(file.cut().empty());
  CHECK(file.timers_in(std::chrono::milliseconds(50)) == 1);
  file.host.clock().advance(std::chrono::milliseconds(49));
  file.write(9);
  file.write(6);
  CHECK(file.cut().empty());
  CHECK(file.timers_in(std::chrono::milliseconds(1)) == 1);
  file.host.clock().advance(std::chrono::milliseconds(1));
  CHECK(file.cut() == Parts{5, 6});
  CHECK(file.timers_in(std::chrono::milliseconds(49)) == 1);
  file.host.clock().advance(std::chrono::milliseconds(49));
  CHECK(file.cut() == Parts{9});
}

TEST_CASE("what was cut already is waited for by nobody") {
  OutOfOrder file;
  file.write(3);
  file.host.clock().advance(std::chrono::milliseconds(50));
  CHECK(file.cut() == Parts{3});
  file.store();
  {
    const Lock lock(file.host.shared().mutex);
    Slot& slot = *file.scans.at(0)->parts.at(0)->segment.slot;
    REQUIRE(slot.state == SlotState::kOpen);
    file.session->cutter().seal_early(slot);
  }
  file.write(4);
  CHECK(file.cut() == Parts{4});
}

TEST_CASE("no hole is waited for by who needs the bytes") {
  OutOfOrder file;
  file.write(3);
  file.write(4);
  CHECK(file.cut().empty());
  const Lock lock(file.host.shared().mutex);
  SECTION("a commit") { REQUIRE(file.session->start_commit(true)); }
  SECTION("a sync") { REQUIRE(file.session->start_sync() != nullptr); }
  SECTION("an end") { file.session->abort(Code::kCancelled); }
  SECTION("a window that is short of slots") {
    REQUIRE(file.host.window().waiting_count() == 2);
    Slot* const oldest = file.host.window().oldest_waiting();
    REQUIRE(oldest != nullptr);
    file.session->cutter().seal_early(*oldest);
  }
  Work work;
  file.session->plan(work);
  const bool ended = file.session->error().has_value();
  CHECK(work.search.size() == (ended ? 0 : 2));
  CHECK(file.host.window().free_count() == (ended ? 16 : 14));
  for (const Work::Search& search : work.search) file.scans.push_back(search.scan);
}

TEST_CASE("a sync moves on with each chunk that it waits for, and with no later one") {
  Host host;
  const auto session = NewFile().open(host, Naming::kOff);
  const Lock lock(host.shared().mutex);
  const auto write = [&](std::uint64_t offset, std::size_t length) {
    const auto slot = session->begin_write(offset, length);
    REQUIRE(slot);
    std::memset((*slot)->data + offset % kChunk, 1, length);
    return session->end_write(**slot, offset, length);
  };
  // Two chunks of one slot.
  REQUIRE(write(0, 1000) == nullptr);
  REQUIRE(write(30000, 1000) == nullptr);
  const CompletionPtr sync = session->start_sync();
  const OutChunkPtr later = write(kChunk, kChunk);
  REQUIRE(later != nullptr);
  Work work;
  session->plan(work);
  for (const auto& group : work.hash) {
    for (const OutChunkPtr& chunk : group) session->hashed(chunk);
  }
  session->hashed(later);
  Work next;
  session->plan(next);
  REQUIRE(next.write.size() == 3);
  REQUIRE(next.write[2]->chunk == later);
  const std::uint64_t before = sync->moved;
  session->writer().written(*next.write[2], {});
  CHECK(sync->moved == before);
  session->writer().written(*next.write[0], {});
  CHECK(sync->moved > before);
  CHECK_FALSE(sync->done());
  session->writer().written(*next.write[1], {});
  REQUIRE(sync->done());
  CHECK(sync->status->has_value());
}

TEST_CASE("a quarter of the window waits for a hole at most: the first in the file is cut then") {
  OutOfOrder file;
  for (const std::uint64_t part : {6U, 3U, 9U, 4U}) file.write(part);
  CHECK(file.cut().empty());
  file.write(12);
  CHECK(file.cut() == Parts{3, 4});
  file.write(15);
  CHECK(file.cut().empty());
  file.write(18);
  CHECK(file.cut() == Parts{6});
}

TEST_CASE("who outruns a thread that is kept from going on is held back, for a while") {
  OutOfOrder file;
  file.write(0);
  file.write(2);
  file.write(1);
  CHECK(file.cut() == Parts{0, 1, 2});
  for (const std::uint64_t part : {4U, 5U, 6U, 7U}) file.write(part);
  CHECK(file.would_wait(8));
  CHECK(file.cut().empty());
  SECTION("until it has gone on") {
    file.write(3);
    CHECK_FALSE(file.would_wait(8));
    CHECK(file.cut() == Parts{3, 4, 5, 6, 7});
  }
  SECTION("and not again when there was no such thread") {
    CHECK(file.timers_in(std::chrono::milliseconds(20)) == 1);
    file.host.clock().advance(std::chrono::milliseconds(20));
    CHECK(file.cut().empty());
    file.write(8);
    CHECK(file.cut() == Parts{4, 5, 6, 7, 8});
    for (const std::uint64_t part : {10U, 11U, 12U, 13U, 14U}) file.write(part);
    CHECK(file.cut() == Parts{10, 11, 12, 13, 14});
  }
}

}  // namespace stdchk::client
