// Requests on names and attributes, and on the pool.
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "core/base/limits.h"
#include "core/policy/image_name.h"
#include "manager/drain/drain_checks.h"
#include "manager/drain/drain_planner.h"
#include "manager/pool/sets.h"
#include "manager/recovery/log_keepers.h"
#include "manager/replication/copy_planner.h"
#include "manager/replication/scrubber.h"
#include "manager/service/service.h"

namespace stdchk::manager {

void Service::serve(ClientRecord& client, const msg::Lookup& request, const Call& call) {
  watchers_.watch(request.parent, client.id, now());
  const auto found = state_.lookup(request.parent, request.name, client.id);
  if (!found) return call.fail(found.error());
  call.answer(msg::Lookup::Reply{attributes(**found)});
}

void Service::serve(ClientRecord& client, const msg::GetAttributes& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "getattr");
  watchers_.watch(file->type == FileType::kDirectory ? file->id : file->parent, client.id, now());
  call.answer(msg::GetAttributes::Reply{attributes(*file)});
}

void Service::serve(ClientRecord& client, const msg::ReadDirectory& request, const Call& call) {
  const auto directory = state_.directory(request.directory);
  if (!directory) return call.fail(directory.error());
  watchers_.watch(request.directory, client.id, now());
  const auto& children = (*directory)->children;
  const auto& pending = (*directory)->pending_children;
  auto child = children.upper_bound(request.after);
  auto mine = pending.upper_bound(request.after);
  msg::ReadDirectory::Reply reply;
  reply.parent = (*directory)->parent;
  while (child != children.end() || mine != pending.end()) {
    const bool from_pending =
        child == children.end() || (mine != pending.end() && mine->first <= child->first);
    const std::string& name = from_pending ? mine->first : child->first;
    const auto seen = state_.lookup(request.directory, name, client.id);
    if (seen) {
      if (reply.entries.size() == limits::kDirectoryPageMax) {
        reply.more = true;
        break;
      }
      reply.entries.push_back({name, attributes(**seen)});
    }
    if (child != children.end() && child->first == name) {
      if (from_pending) ++mine;
      ++child;
    } else {
      ++mine;
    }
  }
  call.answer(std::move(reply));
}

void Service::serve(ClientRecord& client, const msg::SetAttributes& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "setattr");
  ChangeAttributes command{request, reactor_.clock().wall_ns(), has_drain()};
  if (!file->parent) {
    // Pending or removed: the journal does not know the file, so it does not get the change.
    const auto outcome = state_.apply_unjournalled(command);
    if (!outcome) return call.fail(outcome.error());
    return call.answer(msg::SetAttributes::Reply{attributes(*state_.file(request.file))});
  }
  const ClientId id = client.id;
  command.caller = {request.client, call.id()};
  change(std::move(command), call, [this, file = request.file](const Outcome&) -> rpc::Answer {
    const File* now_at = state_.file(file);
    if (now_at == nullptr) {
      return tl::unexpected(rpc::Failure{{Code::kStale, 0, "setattr"}, {}, {}});
    }
    return msg::SetAttributes::Reply{attributes(*now_at)};
  });
  file_changed(request.file, id);
}

void Service::serve(ClientRecord& client, const msg::MakeDirectory& request, const Call& call) {
  const FileId id{next_id()};
  change(AddDirectory{id,
                      request.parent,
                      request.name,
                      request.mode,
                      request.uid,
                      request.gid,
                      reactor_.clock().wall_ns(),
                      has_drain(),
                      {request.client, call.id()}},
         call, [this](const Outcome& outcome) -> rpc::Answer {
           const File* made = state_.file(outcome.file);
           return msg::MakeDirectory::Reply{made == nullptr ? Attributes{} : attributes(*made)};
         });
  entry_changed(request.parent, request.name, client.id);
}

void Service::serve(ClientRecord& client, const msg::MakeSymlink& request, const Call& call) {
  const FileId id{next_id()};
  change(AddSymlink{id,
                    request.parent,
                    request.name,
                    request.target,
                    request.uid,
                    request.gid,
                    reactor_.clock().wall_ns(),
                    has_drain(),
                    {request.client, call.id()}},
         call, [this](const Outcome& outcome) -> rpc::Answer {
           const File* made = state_.file(outcome.file);
           return msg::MakeSymlink::Reply{made == nullptr ? Attributes{} : attributes(*made)};
         });
  entry_changed(request.parent, request.name, client.id);
}

void Service::serve(ClientRecord& client, const msg::MakeNode& request, const Call& call) {
  const FileId id{next_id()};
  change(AddNode{id,
                 request.parent,
                 request.name,
                 request.type,
                 request.mode,
                 request.uid,
                 request.gid,
                 request.device,
                 reactor_.clock().wall_ns(),
                 has_drain(),
                 {request.client, call.id()}},
         call, [this](const Outcome& outcome) -> rpc::Answer {
           const File* made = state_.file(outcome.file);
           return msg::MakeNode::Reply{made == nullptr ? Attributes{} : attributes(*made)};
         });
  entry_changed(request.parent, request.name, client.id);
}

void Service::serve(ClientRecord& client, const msg::MakeLink& request, const Call& call) {
  watchers_.watch(request.parent, client.id, now());
  change(AddLink{request.file,
                 request.parent,
                 request.name,
                 reactor_.clock().wall_ns(),
                 has_drain(),
                 {request.client, call.id()}},
         call, [this](const Outcome& outcome) -> rpc::Answer {
           const File* linked = state_.file(outcome.file);
           return msg::MakeLink::Reply{linked == nullptr ? Attributes{} : attributes(*linked)};
         });
  file_changed(request.file, client.id);
  entry_changed(request.parent, request.name, client.id);
  sets_->set_changed(request.parent, request.name);
}

/// Returns how many committed names the file has.
std::uint32_t Service::names_of(FileId file) const {
  const File* const at = state_.file(file);
  if (at == nullptr || !at->parent) return 0;
  return 1 + static_cast<std::uint32_t>(at->links.size());
}

void Service::serve(ClientRecord&, const msg::ReadSymlink& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "readlink");
  if (file->type != FileType::kSymlink) return call.fail(Code::kInvalidArgument, "readlink");
  call.answer(msg::ReadSymlink::Reply{file->target});
}

void Service::serve(ClientRecord& client, const msg::Remove& request, const Call& call) {
  const auto seen = state_.lookup(request.parent, request.name, client.id);
  if (!seen) return call.fail(seen.error());
  const FileId id = (*seen)->id;
  const bool pending = !(*seen)->parent;
  watchers_.watch(request.parent, client.id, now());
  if (pending) {
    if (request.directory) return call.fail(Code::kNotDirectory, "rmdir");
    state_.drop_pending_name(id);
    file_changed(id, client.id);
    // Without a committed file under the pending one, nothing durable has changed.
    const auto covered = state_.lookup(request.parent, request.name, client.id);
    if (!covered) return call.answer(msg::Remove::Reply{id, {}, 0});
  }
  file_changed(id, client.id);
  entry_changed(request.parent, request.name, client.id);
  change(RemoveName{request.parent,
                    request.name,
                    request.directory,
                    reactor_.clock().wall_ns(),
                    has_drain(),
                    {request.client, call.id()}},
         call, [this, id, parent = request.parent](const Outcome&) -> rpc::Answer {
           return msg::Remove::Reply{id, attributes_of(parent), names_of(id)};
         });
  sets_->set_changed(request.parent, request.name);
}

/// Returns true when an image `name` would be added to a set that was found whole with fewer images
/// than its folder asks for now. Such an addition counts as writing the set again.
bool Service::adds_to_whole(FileId folder, std::string_view name) const {
  const auto image = parse_image_name(name);
  const File* const at = state_.file(folder);
  if (!image || at == nullptr) return false;
  const std::uint64_t whole = state_.set_generations().whole(folder, *image);
  if (whole == 0 || policy(*at).get(PolicyKey::kImages) <= whole) return false;
  const auto there = state_.lookup(folder, name, ClientId{});
  return !there || (*there)->newest.content() == 0;
}

void Service::serve(ClientRecord& client, const msg::Rename& request, const Call& call) {
  const auto seen = state_.lookup(request.from_parent, request.from_name, client.id);
  if (!seen) return call.fail(seen.error());
  const FileId moved = (*seen)->id;
  entry_changed(request.from_parent, request.from_name, client.id);
  entry_changed(request.to_parent, request.to_name, client.id);
  if (!(*seen)->parent) {
    const auto target = state_.lookup(request.to_parent, request.to_name, client.id);
    if (request.exchange) return call.fail(Code::kBusy, "rename");
    if (target && request.no_replace) return call.fail(Code::kExists, "rename");
    const FileId replaced = target && *target != *seen ? (*target)->id : FileId{};
    if (const auto status = state_.rename_pending(moved, request.to_parent, request.to_name);
        !status) {
      return call.fail(status.error());
    }
    return call.answer(msg::Rename::Reply{replaced, names_of(replaced), moved});
  }
  const bool adds = adds_to_whole(request.to_parent, request.to_name);
  if (!request.exchange) {
    replaced_files_.keep_file_at(request.to_parent, request.to_name, now());
  }
  change(RenameName{request.from_parent,
                    request.from_name,
                    request.to_parent,
                    request.to_name,
                    request.no_replace,
                    request.exchange,
                    reactor_.clock().wall_ns(),
                    has_drain(),
                    {request.client, call.id()}},
         call, [this](const Outcome& outcome) -> rpc::Answer {
           return msg::Rename::Reply{outcome.replaced, names_of(outcome.replaced), outcome.file};
         });
  file_changed(moved, client.id);
  const File* const image = state_.file(moved);
  if (adds && image != nullptr && image->newest.version > 0 && image->parent == request.to_parent &&
      image->name == request.to_name) {
    const auto set = parse_image_name(image->name);
    const std::uint64_t begun = image->newest.written - 1;
    execute(BeginGeneration{image->parent, set->application, begun, 0, {{set->timestep, begun}}},
            [](const Result<Outcome>&) {});
  }
  sets_->set_changed(request.from_parent, request.from_name);
  sets_->set_changed(request.to_parent, request.to_name);
}

void Service::serve(ClientRecord& client, const msg::SetXattr& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "setxattr");
  ChangeXattr command{request, reactor_.clock().wall_ns()};
  if (!file->parent) {
    const auto outcome = state_.apply_unjournalled(command);
    if (!outcome) return call.fail(outcome.error());
    return call.answer(msg::SetXattr::Reply{});
  }
  file_changed(request.file, client.id);
  command.caller = {request.client, call.id()};
  change(std::move(command), call,
         [](const Outcome&) -> rpc::Answer { return msg::SetXattr::Reply{}; });
}

void Service::serve(ClientRecord&, const msg::GetXattrs& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "getxattr");
  call.answer(msg::GetXattrs::Reply{{file->xattrs.begin(), file->xattrs.end()}});
}

void Service::serve(ClientRecord&, const msg::GetPolicy& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "get policy");
  call.answer(msg::GetPolicy::Reply{file->policy, policy(*file)});
}

void Service::serve(ClientRecord& client, const msg::SetPolicy& request, const Call& call) {
  for (const PolicySetting& setting : request.changes.settings) {
    if (auto problem = check_setting(setting)) {
      return call.fail(problem->code, "set policy", std::move(problem->text));
    }
  }
  file_changed(request.directory, client.id);
  sets_->run();  // sets that are whole under the old policy stay so
  sets_->look_at_all();
  change(SetPolicy{request.directory,
                   request.changes,
                   reactor_.clock().wall_ns(),
                   {request.client, call.id()}},
         call, [](const Outcome&) -> rpc::Answer { return msg::SetPolicy::Reply{}; });
}

void Service::serve(ClientRecord&, const msg::ListSets& request, const Call& call) {
  const auto folder = state_.directory(request.directory);
  if (!folder) return call.fail(folder.error());
  const Policy holds = policy(**folder);
  const std::vector<ImageSet> sets = sets_->sets_in(**folder, holds);
  const SetsPlan plan = plan_sets(sets, holds, reactor_.clock().wall_ns());
  msg::ListSets::Reply reply;
  reply.images_wanted = holds.get(PolicyKey::kImages);
  // The newest first: when a message cannot hold all, the oldest sets are left out.
  for (auto set = sets.rbegin(); set != sets.rend(); ++set) {
    if (reply.sets.size() == limits::kSetsMax) break;
    const bool latest = plan.latest == set_name(set->application, set->timestep);
    reply.sets.push_back({set->application, set->timestep, set->images,
                          std::min(set->drained, set->images), set->bytes, set->newest_ns,
                          is_complete(*set, holds), set->pinned, latest});
  }
  call.answer(std::move(reply));
}

msg::StatPool::Reply Service::statistics() const {
  msg::StatPool::Reply reply;
  std::tie(reply.total_bytes, reply.free_bytes) = lent_and_free();
  for (const auto& [sequence, id] : state_.evictable()) {
    reply.evictable_bytes += state_.file(id)->newest.stored_bytes;
  }
  reply.file_count = state_.file_count() - 1;
  reply.chunk_count = state_.chunks().chunk_count();
  reply.logical_bytes = state_.logical_bytes();
  reply.stored_bytes = state_.chunks().stored_bytes();
  const msg::DrainNow::Reply drain = drain_->pending(kRootFile);
  reply.drain_pending_files = drain.pending_files;
  reply.drain_pending_bytes = drain.pending_bytes;
  reply.drain_failed_files = drain.failed_files;
  reply.session_count = sessions_.size();
  reply.client_count = clients_.size();
  for (const auto& [id, client] : clients_) reply.reader_count += client.reader_count;
  reply.requests_served = requests_served_;
  reply.epoch = state_.epoch();
  reply.pid = ::getpid();
  const CopyPlanner::Figures copies = copies_->figures();
  reply.debt_chunks = copies.debt_chunks;
  reply.debt_bytes = copies.debt_bytes;
  reply.lost_chunks = copies.lost_chunks;
  reply.copies_made = copies.copies_made;
  reply.copied_bytes = copies.copied_bytes;
  reply.stripes = state_.stripes().size();
  state_.stripes().for_each([&](const Stripe& stripe) {
    for (std::size_t i = stripe.data; i < stripe.members.size(); ++i) {
      reply.parity_bytes += state_.chunks().length(stripe.members[i]);
    }
  });
  reply.rebuilt_chunks = copies.rebuilt;
  reply.scrub = scrubber_->figures();
  reply.log_copies = logs_->count();
  reply.log_copies_wanted = limits::kLogCopies;
  const LogKeepers::Figures logs = logs_->figures();
  reply.log_bytes = logs.log_bytes;
  reply.log_bytes_needed = logs.needed_bytes;
  reply.log_bytes_max = logs.room_bytes;
  reply.log_full = logs.full;
  reply.standby_keepers = logs.voters;
  reply.standby_reached = logs.reached;
  reply.log_advice = logs_->advice();
  reply.standby = config_.standby;
  reply.standby_follows = standby_heard_ && now() - *standby_heard_ <= limits::kLease;
  reply.totals = totals();
  return reply;
}

void Service::serve(ClientRecord&, const msg::StatPool&, const Call& call) {
  call.answer(statistics());
}

void Service::serve(ClientRecord&, const msg::ListAborted&, const Call& call) {
  msg::ListAborted::Reply reply;
  std::size_t bytes = 0;
  for (auto entry = aborted_.rbegin(); entry != aborted_.rend(); ++entry) {
    bytes += entry->path.size() + entry->host_name.size() + 64;
    if (bytes > limits::kMessageBytesMax / 2) break;
    reply.entries.push_back(*entry);
  }
  call.answer(std::move(reply));
}

void Service::serve(ClientRecord&, const msg::DrainNow& request, const Call& call) {
  if (state_.file(request.below) == nullptr) return call.fail(Code::kNotFound, "drain");
  sets_->run();  // a client that sees nothing pending must find the links to drained sets, too
  drain_->hurry(request.below);
  call.answer(drain_->pending(request.below));
}

void Service::serve(ClientRecord&, const msg::ConfirmDrained& request, const Call& call) {
  confirm(request, call);
}

/// Checks the files in the drain directory, after changes of their names there have ended.
void Service::confirm(const msg::ConfirmDrained& request, const Call& call) {
  const auto moves = [this](FileId id) {
    const File* file = state_.file(id);
    return file != nullptr && file->parent && file->newest.drained && drain_->moves(*file);
  };
  if (std::ranges::any_of(request.files, moves)) {
    if (now() + limits::kHeartbeatInterval >= call.deadline()) {
      return call.fail(Code::kBusy, "confirm drained: a change of names in the drain directory");
    }
    waiting_confirms_.push_back({request, call});
    return;
  }
  drain_checks_->look_up(request.files, call.deadline(),
                         [request, call](const Result<DrainChecks::Found>& found) {
                           if (!found) return call.fail(found.error());
                           msg::ConfirmDrained::Reply reply;
                           for (std::uint32_t i = 0; i < request.files.size(); ++i) {
                             if (found->missing.count(request.files[i]) > 0) {
                               reply.missing.push_back(i);
                             } else if (found->there.count(request.files[i]) == 0) {
                               reply.undrained.push_back(i);
                             }
                           }
                           call.answer(std::move(reply));
                         });
}

void Service::serve(ClientRecord& client, const msg::ClientHeartbeat& request, const Call& call) {
  ledger_.tell(request.totals, request.reads);
  client.reader_count = request.reader_count;
  call.answer(msg::ClientHeartbeat::Reply{});
}

void Service::serve(ClientRecord& client, const msg::GoodbyeClient& request, const Call& call) {
  ledger_.tell_last(request.totals, request.reads);
  call.answer(msg::GoodbyeClient::Reply{});
  end_client(client.id, false);
}

}  // namespace stdchk::manager
