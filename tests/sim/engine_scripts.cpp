#include "tests/sim/engine_scripts.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/limits.h"
#include "tests/sim/checkers.h"

namespace stdchk::sim {

using client::Lock;
using Outcome = ChangeModel::Outcome;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t kSizeMax = 500000;
constexpr std::uint64_t kBlock = 40000;  ///< block size of files that two processes write
/// Changes of names that a read may not outlast: each takes up to 300 ms, one after the other.
constexpr std::size_t kBacklog = limits::kOperationDeadline / 300ms;

Outcome outcome_of(const Status& status) {
  if (status.has_value()) return Outcome::kDone;
  return is_maybe(status.error().code) ? Outcome::kMaybe : Outcome::kNot;
}

std::string show(const Content& content) {
  return content ? fmt::format("{} bytes", content->size()) : "nothing";
}

/// Names the first and last byte where two contents differ.
std::string difference(const Content& a, const Content& b) {
  if (!a || !b) return show(b);
  std::size_t first = 0;
  std::size_t end = std::min(a->size(), b->size());
  while (first < end && (*a)[first] == (*b)[first]) ++first;
  while (end > first && (*a)[end - 1] == (*b)[end - 1]) --end;
  return fmt::format("{} with others in [{}, {})", show(b), first, end);
}

}  // namespace

bool is_maybe(Code code) {
  return code == Code::kDeadline || code == Code::kPeerLost || code == Code::kManagerLost ||
         code == Code::kFenced || code == Code::kBusy || code == Code::kCancelled;
}

void Script::accept(const Error& why, const char* what) {
  ++scene_.tally.errors;
  scene_.note(static_cast<std::uint64_t>(why.code));
  if (why.code == Code::kCorrupt && scene_.rotten_since(began_)) return;
  if (why.code == Code::kCorrupt) scene_.complain(fmt::format("bytes: {} is corrupt", name_));
  if (why.code == Code::kNoSpace || scene_.faults) return;
  scene_.complain(fmt::format("{} of {} failed without faults: {}", what, name_, describe(why)));
}

void Script::accept_read(const Error& why, const char* what) {
  const manager::Service* const manager = scene_.cluster.manager();
  const bool has_backlog = manager != nullptr && manager->state().mirror_queue().size() >= kBacklog;
  if (why.code != Code::kDeadline || !has_backlog) return accept(why, what);
  ++scene_.tally.errors;
  scene_.note(static_cast<std::uint64_t>(why.code));
}

// ---- writer -----------------------------------------------------------------------------------

WriterScript::WriterScript(Scene& scene, EngineNode& node, std::string name,
                           std::optional<unsigned> half)
    : Script(scene, node, std::move(name)), half_(half) {
  ++entry().writers;
  entry().alone |= exact();
}

void WriterScript::start() {
  truncate_ = exact() && scene_.prng.chance(1, 2);
  exists_ = entry().possible.begin()->has_value();
  if (exact() && exists_ && !truncate_) view_ = **entry().possible.begin();
  ++scene_.tally.opens;
  entry().opening.insert(node_.node().name);
  msg::OpenSession request;
  request.parent = kRootFile;
  request.name = name_;
  request.truncate = truncate_;
  request.mode = 0644;
  std::shared_ptr<client::Engine::Opening> opening;
  {
    const Lock lock(node_.engine().shared().mutex);
    opening = node_.engine().open_session(std::move(request));
  }
  node_.wait(
      "open " + name_,
      [self = shared_from_this(), opening](Lock&) -> Status {
        if (!opening->status.has_value()) return fail(Code::kWouldBlock, "sim");
        if (opening->status->has_value()) {
          self->file_ =
              std::make_shared<client::OpenFile>(self->node_.engine(), opening->session, false);
          opening->session.reset();
        }
        return *opening->status;
      },
      [self = shared_from_this()](const Status& status) { self->opened(status); });
}

void WriterScript::opened(Status status) {
  entry().opening.erase(node_.node().name);
  steps_ = static_cast<int>(1 + scene_.prng.below(scene_.long_writers ? 100 : 12));
  if (!status.has_value()) {
    accept(status.error(), "open");
    return finish();
  }
  {
    Lock lock(node_.engine().shared().mutex);
    const Attributes there = file_->attributes(lock);
    created_ = there.version == 0;
    if (exact() && there.size_bytes != view_.size()) {
      scene_.complain(fmt::format("bytes: {} opens with {} bytes, not {}", name_, there.size_bytes,
                                  view_.size()));
    }
  }
  next();
}

void WriterScript::next() {
  if (ended_) return;
  if (steps_-- == 0) {
    const auto way = scene_.prng.below(10);
    if (way == 0) return abort();
    return commit(true, way < 3);
  }
  // Long writers commit rarely: only stored but uncommitted chunks can be lost.
  if (scene_.long_writers && scene_.prng.chance(2, 3)) {
    const auto way = scene_.prng.below(3);
    return way == 0 ? write() : way == 1 ? sync() : pause(6s);
  }
  switch (scene_.prng.below(24)) {
    case 0:
    case 1:
      return commit(false, false);
    case 2:
    case 3:
      return sync();
    case 4:
    case 5:
    case 6:
      return exact() ? read_back() : write();
    case 7:
    case 8:
      return exact() ? truncate() : write();
    case 9:
      return exact() ? rename() : write();
    case 10:
      return exact() && scene_.prng.chance(1, 2) ? remove() : write();
    case 11:
    case 12:
    case 13:
      return pause(4s);
    case 14:
    case 15:
      return exact() ? append() : write();
    default:
      return write();
  }
}

void WriterScript::pause(std::chrono::milliseconds most) {
  node_.sleep(Duration(1ms) * scene_.prng.below(static_cast<std::uint64_t>(most.count())),
              [self = shared_from_this()] { self->next(); });
}

std::vector<std::byte> WriterScript::make_bytes(std::size_t length) {
  // Few patterns, so that equal chunks are often in the pool already.
  const std::uint64_t patterns = scene_.prng.chance(1, 3) ? 6 : 1000000;
  Prng bytes(scene_.long_writers ? scene_.prng.next() : 1 + scene_.prng.below(patterns));
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; i += 8) {
    const std::uint64_t word = bytes.next();
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, length - i));
  }
  return out;
}

void WriterScript::write() {
  ++scene_.tally.writes;
  std::uint64_t offset = 0;
  std::size_t length = 1 + scene_.prng.below(scene_.prng.chance(1, 4) ? 3000 : 150000);
  if (!exact()) {
    offset = (2 * scene_.prng.below(6) + *half_) * kBlock;
    const std::uint64_t skip = scene_.prng.chance(1, 2) ? 0 : scene_.prng.below(kBlock);
    length = std::min<std::size_t>(length, kBlock - skip);
    offset += skip;
  } else if (scene_.prng.chance(1, 2) && view_.size() < kSizeMax) {
    offset = view_.size();
  } else {
    offset = scene_.prng.below(kSizeMax);
  }
  const auto part = std::make_shared<Part>(Part{offset, make_bytes(length)});
  node_.wait(
      fmt::format("write {} +{} of {}", offset, length, name_),
      [file = file_, part, done = std::size_t{0}](Lock& lock) mutable {
        return file->write(lock, part->offset, part->bytes, done);
      },
      [self = shared_from_this(), part](const Status& status) {
        if (!status.has_value()) return self->fail_with(status.error(), "write");
        auto& view = self->view_;
        const std::size_t end = part->offset + part->bytes.size();
        if (view.size() < end) view.resize(end);
        std::copy(part->bytes.begin(), part->bytes.end(),
                  view.begin() + static_cast<std::ptrdiff_t>(part->offset));
        self->parts_.push_back(*part);
        self->next();
      });
}

void WriterScript::append() {
  ++scene_.tally.writes;
  if (view_.size() > kSizeMax) return next();
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(make_bytes(1 + scene_.prng.below(60000)));
  node_.wait(
      "append to " + name_,
      [file = file_, bytes, at = std::optional<std::uint64_t>{},
       done = std::size_t{0}](Lock& lock) mutable -> Status {
        if (!at.has_value()) {
          STDCHK_ASSIGN(at, file->append_at(lock, bytes->size()));
        }
        return file->write(lock, *at, *bytes, done);
      },
      [self = shared_from_this(), bytes](const Status& status) {
        if (!status.has_value()) return self->fail_with(status.error(), "append");
        self->view_.insert(self->view_.end(), bytes->begin(), bytes->end());
        self->next();
      });
}

void WriterScript::truncate() {
  ++scene_.tally.truncates;
  const std::uint64_t size = scene_.prng.below(scene_.prng.chance(1, 3) ? 1 : kSizeMax);
  node_.wait(
      "truncate " + name_, [file = file_, size](Lock&) { return file->session()->truncate(size); },
      [self = shared_from_this(), size](const Status& status) {
        if (!status.has_value()) return self->fail_with(status.error(), "truncate");
        self->view_.resize(size);
        self->next();
      });
}

void WriterScript::read_back() {
  if (view_.empty()) return next();
  ++scene_.tally.reads;
  const std::uint64_t offset = scene_.prng.below(view_.size());
  const auto out = std::make_shared<std::vector<std::byte>>(1 + scene_.prng.below(200000));
  const auto got = std::make_shared<std::size_t>(0);
  node_.wait(
      "read back " + name_,
      [file = file_, offset, out, got](Lock& lock) { return file->read(lock, offset, *out, *got); },
      [self = shared_from_this(), offset, out, got](const Status& status) {
        if (!status.has_value()) {
          self->accept_read(status.error(), "read back");
          return self->next();
        }
        const std::size_t wanted = std::min<std::size_t>(out->size(), self->view_.size() - offset);
        if (*got != wanted) {
          self->scene_.complain(fmt::format("bytes: {} reads {} bytes at {}, not {}", self->name_,
                                            *got, offset, wanted));
        }
        const auto first = self->view_.begin() + static_cast<std::ptrdiff_t>(offset);
        const auto differs =
            std::mismatch(out->begin(),
                          out->begin() + static_cast<std::ptrdiff_t>(std::min(*got, wanted)), first)
                .first -
            out->begin();
        if (static_cast<std::size_t>(differs) != std::min(*got, wanted)) {
          self->scene_.complain(
              fmt::format("bytes: {} does not read what it wrote at {} (read {} +{})", self->name_,
                          offset + static_cast<std::size_t>(differs), offset, wanted));
        }
        self->next();
      });
}

void WriterScript::sync() {
  ++scene_.tally.syncs;
  node_.wait_for(
      "sync " + name_,
      [file = file_](Lock&) -> Result<client::CompletionPtr> {
        return file->session()->start_sync();
      },
      [self = shared_from_this()](const Status& status) {
        if (!status.has_value()) return self->fail_with(status.error(), "sync");
        self->next();
      });
}

void WriterScript::commit(bool end, bool early) {
  ++scene_.tally.commits;
  ChangeModel::Change change;
  if (exact()) {
    change = [after = view_](const Content&) { return Content(after); };
  } else {
    change = [parts = std::move(parts_), created = created_](const Content& before) {
      if (parts.empty() && !created) return before;
      std::vector<std::byte> bytes = before.value_or(std::vector<std::byte>{});
      for (const Part& part : parts) {
        bytes.resize(std::max<std::size_t>(bytes.size(), part.offset + part.bytes.size()));
        std::copy(part.bytes.begin(), part.bytes.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(part.offset));
      }
      return Content(std::move(bytes));
    };
    parts_.clear();
  }
  if (!unlinked_) changes_.push_back({&entry(), ChangeModel::begin(entry(), std::move(change))});
  const auto self = shared_from_this();
  const auto done = [self, end, early](const Status& status) {
    self->committed(status, end, early);
  };
  // An early close releases the file at once; the commit's result arrives later.
  if (early) {
    const auto completion = std::make_shared<client::CompletionPtr>();
    node_.wait(
        "early close " + name_,
        [self, completion](Lock& lock) -> Status {
          if (self->file_ != nullptr) {
            STDCHK_ASSIGN(*completion, self->file_->session()->start_commit(
                                           self->file_->session()->openers == 1));
            --self->file_->session()->openers;
            self->file_->release(lock);
            self->file_.reset();
          }
          if (!(*completion)->done()) return fail(Code::kWouldBlock, "sim");
          return *(*completion)->status;
        },
        done);
    return;
  }
  node_.wait_for((end ? "close " : "commit ") + name_,
                 [file = file_, end](Lock&) {
                   return file->session()->start_commit(end && file->session()->openers == 1);
                 },
                 done);
}

void WriterScript::committed(const Status& status, bool end, bool early) {
  if (!unlinked_) {
    ChangeModel::end(*changes_.front().name, changes_.front().ticket, outcome_of(status),
                     scene_.cluster.now() + kSettle);
    changes_.clear();
  }
  scene_.note(status.has_value() ? 1 : 2);
  exists_ |= status.has_value();
  created_ &= !status.has_value();
  if (!status.has_value()) {
    ++scene_.tally.commits_failed;
    if (!unlinked_) accept(status.error(), "commit");
    accept_loss(status.error());
    return leave();
  }
  const bool waits = scene_.redundant || (file_ != nullptr && file_->session()->waits_for_copies);
  if (waits && !early && !unlinked_) return wait_redundant(end);
  return end ? leave() : next();
}

/// Complains about data loss after a single benefactor died, although every chunk had several
/// places. Skips sessions with chunks that were in the pool before, perhaps with one copy.
void WriterScript::accept_loss(const Error& why) {
  if (why.code != Code::kDataLost || file_ == nullptr) return;
  const Lock lock(node_.engine().shared().mutex);
  client::Session& session = *file_->session();
  const client::SessionFigures& figures = session.figures();
  if (session.places() < 2 || figures.bytes_short > 0 || figures.bytes_existing > 0) return;
  if (!scene_.one_lost_since(began_)) return;
  scene_.complain(fmt::format("lost: {} of {} places has failed after one loss: {}", name_,
                              session.places(), describe(why)));
}

/// The progress of a close that waits for copies.
struct WriterScript::Debt {
  FileId file;
  Version version = 0;
  bool end = false;
  Time began{};
  Time until{};
  std::uint64_t least_bytes = ~std::uint64_t{0};
  Duration pause = 5ms;
};

/// Does what BlockingFilesystem::wait_redundant does.
void WriterScript::wait_redundant(bool end) {
  ++scene_.tally.redundant;
  auto debt = std::make_shared<Debt>();
  {
    Lock lock(node_.engine().shared().mutex);
    const Attributes attributes = file_->attributes(lock);
    debt->file = attributes.id;
    debt->version = file_->session()->attributes().version;
  }
  debt->end = end;
  debt->began = scene_.cluster.now();
  debt->until = node_.node().clock.now() + limits::kOperationDeadline;
  ask_debt(std::move(debt));
}

void WriterScript::ask_debt(std::shared_ptr<Debt> debt) {
  node_.ask("copies of " + name_, msg::GetDebt{debt->file, debt->version},
            [self = shared_from_this(), debt](const rpc::Answer& answer) {
              if (!answer.has_value()) {
                const Error& why = answer.error().error;
                // A newer version has replaced it.
                if (why.code == Code::kStale) return self->redundant(*debt, {});
                return self->redundant(*debt, fail(why));
              }
              const auto& reply = std::get<msg::GetDebt::Reply>(*answer);
              if (reply.chunks == 0) return self->redundant(*debt, {});
              if (reply.impossible) return self->redundant(*debt, fail(Code::kNoSpace, "sim"));
              const Time now = self->node_.node().clock.now();
              if (reply.bytes < debt->least_bytes) debt->until = now + limits::kOperationDeadline;
              debt->least_bytes = std::min(debt->least_bytes, reply.bytes);
              if (now >= debt->until) return self->redundant(*debt, fail(Code::kDeadline, "sim"));
              self->node_.sleep(debt->pause, [self, debt] { self->ask_debt(debt); });
              debt->pause = std::min<Duration>(2 * debt->pause, 200ms);
            });
}

void WriterScript::redundant(const Debt& debt, const Status& status) {
  if (ended_) return;
  scene_.note(status.has_value() ? 8 : 9);
  if (status.has_value()) {
    const bool nothing_lost =
        scene_.lost_last + kNoticed < debt.began && !scene_.rotten_since(debt.began);
    for (const std::string& each :
         check_redundant(scene_.cluster, debt.file, debt.version, nothing_lost)) {
      scene_.complain(each);
    }
  } else {
    ++scene_.tally.redundant_failed;
    // The pool may have no room for copies.
    if (status.error().code != Code::kDeadline) accept(status.error(), "copies");
  }
  return debt.end ? leave() : next();
}

void WriterScript::rename() {
  const std::string to = fmt::format("app.N{}.T1", scene_.prng.below(8));
  ChangeModel::Name& target = scene_.model.name(to);
  if (to == name_ || unlinked_ || !exists_ || entry().possible.size() != 1 ||
      !entry().watchers.empty() || target.writers > 0 || target.alone || !target.watchers.empty() ||
      target.settled > scene_.cluster.now()) {
    return next();
  }
  ++scene_.tally.renames;
  target.alone = target.moving = entry().moving = true;
  ++target.writers;
  moving_to_ = to;
  Content moved = *entry().possible.begin();
  // A drained earlier version moves with the file. Its name shows it until the new version is
  // drained.
  target.ever.insert(entry().ever.begin(), entry().ever.end());
  changes_.push_back(
      {&entry(), ChangeModel::begin(entry(), [](const Content&) { return Content{}; })});
  changes_.push_back(
      {&target, ChangeModel::begin(target, [moved](const Content&) { return moved; })});
  msg::Rename request;
  {
    const Lock lock(node_.engine().shared().mutex);
    request = {node_.engine().client(), kRootFile, name_, kRootFile, to, false, false};
  }
  node_.ask("rename " + name_, request, [self = shared_from_this(), to](const rpc::Answer& answer) {
    const Status status = answer.has_value() ? Status{} : fail(answer.error().error);
    for (const Change& each : self->changes_) {
      ChangeModel::end(*each.name, each.ticket, outcome_of(status),
                       self->scene_.cluster.now() + kSettle);
    }
    self->changes_.clear();
    self->entry().moving = self->scene_.model.name(to).moving = false;
    const std::string other = answer.has_value() ? self->name_ : to;
    self->moving_to_.clear();
    auto& left = self->scene_.model.name(other);
    --left.writers;
    left.alone = false;
    self->scene_.note(status.has_value() ? 3 : 4);
    if (status.has_value()) {
      self->name_ = to;
      return self->next();
    }
    self->accept(status.error(), "rename");
    // The file's name is unknown now, so the script ends.
    if (is_maybe(status.error().code)) return self->abort();
    if (status.error().code == Code::kNotFound) {
      self->scene_.complain("bytes: " + self->name_ + " was lost");
    }
    self->next();
  });
}

void WriterScript::remove() {
  if (unlinked_ || !exists_ || entry().possible.size() != 1 || !entry().watchers.empty()) {
    return next();
  }
  ++scene_.tally.unlinks;
  entry().moving = true;
  changes_.push_back(
      {&entry(), ChangeModel::begin(entry(), [](const Content&) { return Content{}; })});
  msg::Remove request;
  {
    const Lock lock(node_.engine().shared().mutex);
    request = {node_.engine().client(), kRootFile, name_, false};
  }
  node_.ask("remove " + name_, request, [self = shared_from_this()](const rpc::Answer& answer) {
    const Status status = answer.has_value() ? Status{} : fail(answer.error().error);
    ChangeModel::end(*self->changes_.front().name, self->changes_.front().ticket,
                     outcome_of(status), self->scene_.cluster.now() + kSettle);
    self->changes_.clear();
    self->scene_.note(status.has_value() ? 5 : 6);
    if (status.has_value()) {
      self->unlinked_ = true;
      return self->next();
    }
    self->accept(status.error(), "remove");
    if (is_maybe(status.error().code)) return self->abort();
    if (status.error().code == Code::kNotFound) {
      self->scene_.complain("bytes: " + self->name_ + " was lost");
    }
    self->next();
  });
}

/// Gives up: the application's bytes may not be stored.
void WriterScript::fail_with(const Error& why, const char* what) {
  accept(why, what);
  accept_loss(why);
  abort();
}

void WriterScript::abort() {
  ++scene_.tally.aborts;
  {
    const Lock lock(node_.engine().shared().mutex);
    file_->session()->abort(Code::kCancelled);
  }
  leave();
}

/// Does what File::close does at its end.
void WriterScript::leave() {
  if (file_ != nullptr) {
    Lock lock(node_.engine().shared().mutex);
    const client::SessionPtr session = file_->session();
    if (--session->openers == 0 && !session->ending()) session->abort(Code::kCancelled);
    file_->release(lock);
    file_.reset();
  }
  finish();
}

void WriterScript::finish() {
  ended_ = true;
  if (--entry().writers == 0) entry().alone = false;
}

void WriterScript::killed() {
  if (file_ != nullptr) {
    Lock lock(node_.engine().shared().mutex);
    file_->release(lock);
    file_.reset();
  }
  const Time settled = scene_.cluster.now() + kSettle;
  for (const Change& each : changes_) {
    ChangeModel::end(*each.name, each.ticket, Outcome::kMaybe, settled);
  }
  changes_.clear();
  entry().moving = false;
  if (!moving_to_.empty()) {
    scene_.model.name(moving_to_).moving = false;
    --scene_.model.name(moving_to_).writers;
    scene_.model.name(moving_to_).alone = false;
  }
  finish();
}

// ---- reader -----------------------------------------------------------------------------------

ReaderScript::ReaderScript(Scene& scene, EngineNode& node, std::string name, bool must_succeed)
    : Script(scene, node, std::move(name)), must_succeed_(must_succeed) {}

ReaderScript::~ReaderScript() { stop_watching(); }

void ReaderScript::start() {
  ++scene_.tally.loads;
  ChangeModel::Name& entry = scene_.model.name(name_);
  if (entry.writers == 0 && entry.watchers.empty() && entry.settled <= scene_.cluster.now()) {
    resolves_ = true;
    entry.alone = true;
    ++entry.writers;
  }
  allowed_ = ChangeModel::reachable(entry);
  entry.watchers.insert(&allowed_);
  watching_ = true;
  msg::Lookup request;
  {
    const Lock lock(node_.engine().shared().mutex);
    request = {node_.engine().client(), kRootFile, name_};
  }
  node_.ask("look up " + name_, request, [self = shared_from_this()](rpc::Answer answer) {
    self->looked_up(std::move(answer));
  });
}

void ReaderScript::stop_watching() {
  if (watching_) scene_.model.name(name_).watchers.erase(&allowed_);
  watching_ = false;
}

void ReaderScript::looked_up(rpc::Answer answer) {
  if (!answer.has_value()) {
    if (answer.error().error.code == Code::kNotFound) return finish(Content{});
    accept(answer.error().error, "look-up");
    return finish({});
  }
  const FileId id = id_ = std::get<msg::Lookup::Reply>(*answer).attributes.id;
  {
    const Lock lock(node_.engine().shared().mutex);
    // A writer in the same process would show uncommitted content.
    const bool opening = scene_.model.name(name_).opening.contains(node_.node().name);
    if (node_.engine().sessions().find(id) == nullptr && !opening) {
      file_ = std::make_shared<client::OpenFile>(node_.engine(), id, nullptr,
                                                 node_.engine().maps().open(id));
    }
  }
  if (file_ == nullptr) return finish({});
  node_.wait(
      "open to read " + name_, [file = file_](Lock& lock) { return file->opened(lock); },
      [self = shared_from_this()](const Status& status) { self->opened(status); });
}

void ReaderScript::opened(const Status& status) {
  stop_watching();
  if (!status.has_value()) {
    if (!must_succeed_ && status.error().code == Code::kNotFound) return finish({});
    accept_read(status.error(), "open to read");
    return finish({});
  }
  {
    Lock lock(node_.engine().shared().mutex);
    bytes_.resize(file_->attributes(lock).size_bytes);
  }
  read_on();
}

void ReaderScript::read_on() {
  if (ended_) return;
  if (got_ == bytes_.size()) return finish(Content(std::move(bytes_)));
  const std::size_t length =
      std::min<std::size_t>(bytes_.size() - got_, 1 + scene_.prng.below(200000));
  const auto done = std::make_shared<std::size_t>(0);
  node_.wait(
      "read " + name_,
      [self = shared_from_this(), length, done](Lock& lock) {
        return self->file_->read(lock, self->got_,
                                 MutableByteSpan(self->bytes_).subspan(self->got_, length), *done);
      },
      [self = shared_from_this(), length, done](const Status& status) {
        if (!status.has_value()) {
          if (self->must_succeed_) {
            self->scene_.complain(fmt::format("bytes: {} at {} cannot be read without faults: {}",
                                              self->name_, self->got_, describe(status.error())));
          }
          // Bytes whose only copy was on a dead benefactor are lost.
          const bool lost = status.error().code == Code::kDataLost &&
                            (self->scene_.lost_since(self->id_, self->began_) ||
                             self->scene_.rotten_since(self->began_));
          if (status.error().code == Code::kDataLost && !lost && !self->must_succeed_) {
            self->scene_.complain(fmt::format("lost: {} at {} cannot be read and is there: {}",
                                              self->name_, self->got_, describe(status.error())));
          }
          if (!lost || self->must_succeed_) self->accept_read(status.error(), "read");
          return self->finish({});
        }
        if (*done != length) {
          self->scene_.complain(
              fmt::format("bytes: {} ends at {} within its size", self->name_, self->got_ + *done));
          return self->finish({});
        }
        self->got_ += length;
        if (self->must_succeed_ || self->scene_.prng.chance(1, 2)) return self->read_on();
        self->node_.sleep(Duration(1ms) * self->scene_.prng.below(6000),
                          [self] { self->read_on(); });
      });
}

void ReaderScript::finish(std::optional<Content> seen) {
  stop_watching();
  if (file_ != nullptr) {
    Lock lock(node_.engine().shared().mutex);
    file_->release(lock);
  }
  file_.reset();
  ended_ = true;
  ChangeModel::Name& entry = scene_.model.name(name_);
  if (resolves_ && --entry.writers == 0) entry.alone = false;
  scene_.note(seen.has_value() && seen->has_value() ? (*seen)->size() : 7);
  if (!seen.has_value()) {
    ++scene_.tally.loads_failed;
    return;
  }
  if (!allowed_.contains(*seen)) {
    std::string may;
    for (const Content& each : allowed_) may += fmt::format(" {};", difference(*seen, each));
    return scene_.complain(
        fmt::format("bytes: {} shows {}, which it never had (but{})", name_, show(*seen), may));
  }
  if (resolves_) entry.possible = {*seen};
}

void ReaderScript::killed() {
  stop_watching();
  if (file_ != nullptr) {
    Lock lock(node_.engine().shared().mutex);
    file_->release(lock);
    file_.reset();
  }
  ended_ = true;
  ChangeModel::Name& entry = scene_.model.name(name_);
  if (resolves_ && --entry.writers == 0) entry.alone = false;
}

}  // namespace stdchk::sim
