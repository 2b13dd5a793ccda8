#include "manager/sessions/lease_service.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/log.h"
#include "manager/drain/drainable_name.h"
#include "manager/sessions/lease_terms.h"

namespace stdchk::manager {
namespace {

std::vector<FileId> directories_of(const NameLeases& leases, std::uint64_t holder) {
  const NameLeases::Holder* const found = leases.find(holder);
  if (found == nullptr) return {};
  return {found->directories.begin(), found->directories.end()};
}

/// Returns the leased directories that the batch is to remove.
std::vector<FileId> removed_by(const NameLeases& leases, const msg::ApplyNames& batch) {
  std::vector<FileId> out;
  for (const msg::NameChange& change : batch.changes) {
    const bool removes = change.kind == msg::NameChangeKind::kRemoveDirectory;
    if (removes && leases.holder(change.file) == batch.holder) out.push_back(change.file);
  }
  return out;
}

}  // namespace

void LeaseService::serve(ClientRecord& client, const msg::LeaseDirectory& request,
                         const Call& call) {
  const FileId directory = request.directory;
  const std::uint64_t known = leases().number_of(client.id);
  const bool is_own = known != 0 && leases().holder(directory) == known;
  const bool is_free = leases().holder(directory) == 0 && !ending_.contains(directory);
  const bool may =
      is_own || (is_free && may_lease(pool_, to_.clients, to_.notices, client, directory));
  msg::LeaseDirectory::Reply reply;
  reply.name_bytes_max =
      static_cast<std::uint32_t>(may ? drainable_name_bytes(pool_, directory) : 0);
  if (recalled_.contains(directory) || reply.name_bytes_max == 0) {
    // The client does not know the lease: it has lost the answer to its earlier request.
    if (is_own) end(known, {directory}, [](const Result<Affected>&) {});
    return call.answer(msg::LeaseDirectory::Reply{});
  }
  reply.granted = true;
  reply.holder = known != 0 ? known : pool_.next_id();
  reply.first_number = give_numbers(client, request.numbers);
  reply.number_count = std::min(request.numbers, kNumbersMax);
  reply.wall_ns = pool_.wall_ns();
  reply.newest_batch = known == 0 ? 0 : leases().find(known)->newest_batch;
  answer_when_durable(pool_, LeaseNames{directory, reply.holder, client.id, 0}, call,
                      [reply](const Affected&) -> rpc::Answer { return reply; });
}

FileId LeaseService::give_numbers(ClientRecord& client, std::uint32_t wanted) {
  const std::uint32_t count = std::min(wanted, kNumbersMax);
  if (count == 0) return {};
  const std::uint64_t first = pool_.next_ids(count);
  client.numbers.add(first, count);
  return FileId{first};
}

void LeaseService::serve(ClientRecord& client, const msg::ApplyNames& request, const Call& call) {
  const NameLeases::Holder* const holder = leases().find(request.holder);
  if (holder == nullptr || !client.was(holder->client)) {
    return call.fail(Code::kStale, "apply names", "The leases on these directories have ended.");
  }
  const std::uint64_t newest = holder->newest_batch;
  if (request.number <= newest) {
    // The holder repeats a batch whose answer was lost.
    return pool_.journal().when_durable([call] { call.answer(msg::ApplyNames::Reply{}); });
  }
  Status fits = check_batch(pool_, client, request);
  if (request.number != newest + 1) fits = fail(Code::kInvalidArgument, "the batch's number");
  if (fits) return apply(client, request, call);
  log::warning("batch {} of client {} on {} is refused, and its leases end: {}", request.number,
               client.id.value, client.host_name, describe(fits.error()));
  end_all(request.holder);
  call.fail(Code::kStale, "apply names", "The batch does not fit.");
}

void LeaseService::apply(ClientRecord& client, const msg::ApplyNames& request, const Call& call) {
  ApplyNames command{request.holder, request.number, {}, pool_.has_drain()};
  command.changes.reserve(request.changes.size());
  for (const msg::NameChange& change : request.changes) {
    const File* const folder = pool_.state().file(change.parent);
    const bool adds = change.kind == msg::NameChangeKind::kAddFile && folder != nullptr;
    command.changes.push_back({change, adds ? to_.sessions.copies_of(*folder, 0) : 0});
  }
  announce(client, request);
  msg::ApplyNames::Reply reply;
  reply.first_number = give_numbers(client, request.numbers);
  reply.number_count = std::min(request.numbers, kNumbersMax);
  // The leases that end with this batch: those on removed directories, or all of a batch that does
  // not fit.
  const auto end = std::make_shared<std::vector<FileId>>(removed_by(leases(), request));
  ending_.insert(end->begin(), end->end());
  const auto fits = std::make_shared<bool>(true);
  pool_.execute(std::move(command), [this, call, reply, fits, end](const Result<Affected>& done) {
    if (!end->empty()) ended(*end);
    if (!done) return call.fail(done.error());
    if (*fits) return call.answer(reply);
    call.fail(Code::kStale, "apply names", "The batch does not fit.");
  });
  if (pool_.journal().failed() || leases().find(request.holder) != nullptr) return;
  *fits = false;
  const std::set<FileId>& lost = leases().ended_last();
  end->insert(end->end(), lost.begin(), lost.end());
  ending_.insert(lost.begin(), lost.end());
  log::warning("batch {} of client {} on {} does not fit, and its leases end", request.number,
               client.id.value, client.host_name);
}

/// Tells planners, and clients that have the files open, what the batch is about to change.
void LeaseService::announce(const ClientRecord& client, const msg::ApplyNames& request) {
  using Kind = msg::NameChangeKind;
  for (const msg::NameChange& change : request.changes) {
    if (change.kind == Kind::kRename) {
      to_.replaced.keep_file_at(change.to_parent, change.to_name);
      to_.notices.entry_changed(change.to_parent, change.to_name, client.id);
    }
    if (change.kind != Kind::kAttributes) {
      to_.notices.entry_changed(change.parent, change.name, client.id);
    }
    const bool is_new = change.kind == Kind::kAddFile || change.kind == Kind::kAddDirectory ||
                        change.kind == Kind::kAddSymlink;
    if (!is_new) to_.notices.file_changed(change.file, client.id);
  }
}

void LeaseService::serve(ClientRecord& client, const msg::ReturnLease& request, const Call& call) {
  const bool names_holder = request.holder != 0 || request.directories.empty();
  const std::uint64_t number =
      names_holder ? request.holder : leases().holder(request.directories.front());
  const NameLeases::Holder* const holder = leases().find(number);
  if (holder == nullptr || !client.was(holder->client)) {
    return call.fail(Code::kStale, "return lease");
  }
  // A client gets no new lease while it holds directories of an earlier manager. So its earlier
  // holder number is of no use without directories.
  const bool is_earlier = holder->client != client.id;
  std::vector<FileId> returned;
  for (const FileId directory : request.directories) {
    if (leases().holder(directory) == number) returned.push_back(directory);
  }
  if (returned.empty()) {
    return pool_.journal().when_durable([call] { call.answer(msg::ReturnLease::Reply{}); });
  }
  end(number, returned, [call](const Result<Affected>& outcome) {
    if (!outcome) return call.fail(outcome.error());
    call.answer(msg::ReturnLease::Reply{});
  });
  if (is_earlier && directories_of(leases(), number).empty()) end_all(number);
}

bool LeaseService::must_wait_for(const ClientRecord& client, const TouchedDirectories& touched) {
  bool waits = false;
  for (const FileId directory : touched.directories()) {
    const ClientId holder = leases().client(directory);
    waits |= !client.was(holder) && has_change_waiting(client, directory);
    const bool is_own = client.was(holder) && !touched.changes_names();
    if (holder && !is_own) recall(directory);
    waits |= (holder && !is_own) || ending_.contains(directory);
  }
  return waits;
}

/// A client's question must not overtake its own change of the directory.
bool LeaseService::has_change_waiting(const ClientRecord& client, FileId directory) const {
  return std::ranges::any_of(waiting_, [&](const Waiting& one) {
    return one.client == client.id &&
           std::ranges::find(one.changes, directory) != one.changes.end();
  });
}

void LeaseService::recall(FileId directory) {
  if (!recalled_.emplace(directory, pool_.now() + kRecallTime).second) return;
  notify_holder(directory);
}

void LeaseService::notify_holder(FileId directory) {
  const ClientId holder = leases().client(directory);
  if (to_.clients.contains(holder)) return to_.notices.recall(holder, directory);
  for (const auto& [id, client] : to_.clients) {
    if (client.was(holder)) to_.notices.recall(id, directory);
  }
}

void LeaseService::start() {
  for (const auto& [directory, holder] : leases().directories()) recall(directory);
  earlier_until_ = pool_.now() + kRecallTime;
}

void LeaseService::end(const ClientRecord& client) {
  for (const ClientId id : {client.id, client.before}) {
    const std::uint64_t holder = id ? leases().number_of(id) : 0;
    if (holder != 0) end_all(holder);
  }
}

void LeaseService::end_all(std::uint64_t holder) {
  const std::vector<FileId> held = directories_of(leases(), holder);
  for (const FileId directory : held) ending_.insert(directory);
  pool_.execute(EndLeases{holder, {}}, [this, held](const Result<Affected>&) { ended(held); });
}

void LeaseService::end(std::uint64_t holder, const std::vector<FileId>& directories,
                       std::function<void(const Result<Affected>&)> done) {
  for (const FileId directory : directories) ending_.insert(directory);
  pool_.execute(EndLeases{holder, directories},
                [this, directories, done = std::move(done)](const Result<Affected>& outcome) {
                  done(outcome);
                  ended(directories);
                });
}

void LeaseService::ended(const std::vector<FileId>& directories) {
  for (const FileId directory : directories) {
    ending_.erase(directory);
    recalled_.erase(directory);
  }
  repeat_waiting();
}

/// Repeats the waiting requests in the order of their arrival. Another lease may stop them again.
void LeaseService::repeat_waiting() {
  std::deque<Waiting> waiting;
  waiting.swap(waiting_);
  for (const Waiting& one : waiting) one.retry();
}

void LeaseService::tick() {
  std::erase_if(recalled_, [this](const auto& recall) {
    return leases().holder(recall.first) == 0 && !ending_.contains(recall.first);
  });
  std::set<std::uint64_t> late;
  for (const auto& [directory, until] : recalled_) {
    const std::uint64_t holder = leases().holder(directory);
    if (holder != 0 && pool_.now() >= until) late.insert(holder);
    // The holder may have registered since, or lost the first notice.
    if (holder != 0 && pool_.now() < until) notify_holder(directory);
  }
  for (const std::uint64_t holder : late) {
    log::warning("client {} does not return a directory that others want: its leases end",
                 leases().find(holder)->client.value);
    // A live holder must stop using its other directories. The answer to ReturnLease tells the
    // holder that all leases have ended.
    for (const FileId directory : directories_of(leases(), holder)) notify_holder(directory);
    end_all(holder);
  }
  end_earlier();
  const std::size_t failed = std::erase_if(waiting_, [this](const Waiting& one) {
    if (pool_.now() < one.call.deadline()) return false;
    one.call.fail(Code::kBusy, "lease", "Another client holds the directory.");
    return true;
  });
  // Other requests may have waited for the failed requests.
  if (failed > 0) repeat_waiting();
}

/// Forgets earlier managers' holders without directories. Such a holder had kRecallTime to repeat
/// its last batch.
void LeaseService::end_earlier() {
  if (!earlier_until_ || pool_.now() < *earlier_until_) return;
  earlier_until_.reset();
  std::vector<std::uint64_t> idle;
  for (const auto& [number, holder] : leases().holders()) {
    const bool is_earlier = Pool::epoch_of(holder.client) < pool_.state().epoch();
    if (is_earlier && holder.directories.empty()) idle.push_back(number);
  }
  for (const std::uint64_t holder : idle) end_all(holder);
}

void LeaseService::discount(Duration pause) {
  if (earlier_until_) *earlier_until_ += pause;
  for (auto& [directory, until] : recalled_) until += pause;
}

}  // namespace stdchk::manager
