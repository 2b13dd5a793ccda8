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
  std::vector<FileId> out;
  for (const auto& [directory, by] : leases.directories()) {
    if (by == holder) out.push_back(directory);
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
  client.numbers.emplace_back(first, count);
  if (client.numbers.size() > ClientRecord::kNumberRangesMax) client.numbers.pop_front();
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
  const std::vector<FileId> held = directories_of(leases(), request.holder);
  msg::ApplyNames::Reply reply;
  reply.first_number = give_numbers(client, request.numbers);
  reply.number_count = std::min(request.numbers, kNumbersMax);
  const auto fits = std::make_shared<bool>(true);
  pool_.execute(std::move(command), [this, call, reply, fits, held](const Result<Affected>& done) {
    if (!*fits) ended(held);
    if (!done) return call.fail(done.error());
    if (*fits) return call.answer(reply);
    call.fail(Code::kStale, "apply names", "The batch does not fit.");
  });
  if (pool_.journal().failed() || leases().find(request.holder) != nullptr) return;
  *fits = false;
  for (const FileId directory : held) ending_.insert(directory);
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
  const NameLeases::Holder* const holder = leases().find(request.holder);
  if (holder == nullptr || !client.was(holder->client)) {
    return call.fail(Code::kStale, "return lease");
  }
  // A number of an earlier manager gets no new leases.
  const bool is_earlier = holder->client != client.id;
  std::vector<FileId> returned;
  for (const FileId directory : request.directories) {
    if (leases().holder(directory) == request.holder) returned.push_back(directory);
  }
  if (returned.empty()) {
    return pool_.journal().when_durable([call] { call.answer(msg::ReturnLease::Reply{}); });
  }
  end(request.holder, returned, [call](const Result<Affected>& outcome) {
    if (!outcome) return call.fail(outcome.error());
    call.answer(msg::ReturnLease::Reply{});
  });
  if (is_earlier && directories_of(leases(), request.holder).empty()) end_all(request.holder);
}

bool LeaseService::must_wait_for(const ClientRecord& client, const TouchedDirectories& touched) {
  bool waits = false;
  for (const FileId directory : touched.directories()) {
    const ClientId holder = leases().client(directory);
    const bool is_own = client.was(holder) && !touched.changes_names();
    if (holder && !is_own) recall(directory);
    waits |= (holder && !is_own) || ending_.contains(directory);
  }
  return waits;
}

void LeaseService::recall(FileId directory) {
  if (!recalled_.emplace(directory, pool_.now() + kRecallTime).second) return;
  notify_holder(directory);
}

void LeaseService::notify_holder(FileId directory) {
  const ClientId holder = leases().client(directory);
  for (const auto& [id, client] : to_.clients) {
    if (client.was(holder)) to_.notices.recall(id, directory);
  }
}

void LeaseService::start() {
  for (const auto& [directory, holder] : leases().directories()) recall(directory);
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

/// Repeats the waiting requests in the order of their arrival. Another lease may stop them again.
void LeaseService::ended(const std::vector<FileId>& directories) {
  for (const FileId directory : directories) {
    ending_.erase(directory);
    recalled_.erase(directory);
  }
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
    end_all(holder);
  }
  std::erase_if(waiting_, [this](const Waiting& one) {
    if (pool_.now() < one.call.deadline()) return false;
    one.call.fail(Code::kBusy, "lease", "Another client holds the directory.");
    return true;
  });
}

void LeaseService::discount(Duration pause) {
  for (auto& [directory, until] : recalled_) until += pause;
}

}  // namespace stdchk::manager
