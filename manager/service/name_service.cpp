#include "manager/service/name_service.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/utf8.h"
#include "core/objects/object_place.h"
#include "core/policy/image_name.h"
#include "core/policy/image_placement.h"
#include "core/policy/set_rules.h"
#include "manager/drain/drainable_name.h"
#include "manager/sets/set_problems.h"
#include "manager/state/access_lists.h"

namespace stdchk::manager {

NameService::NameService(Pool& pool, Neighbours neighbours)
    : pool_(pool), state_(pool.soft_state()), to_(neighbours) {}

void NameService::serve(ClientRecord& client, const msg::Lookup& request, const Call& call) {
  to_.notices.watch(request.parent, client.id);
  const auto found = state_.lookup(request.parent, request.name, client.id);
  if (!found) return call.fail(found.error());
  call.answer(msg::Lookup::Reply{to_.attributes.of(**found)});
}

void NameService::serve(ClientRecord& client, const msg::GetAttributes& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "getattr");
  to_.notices.watch(file->type == FileType::kDirectory ? file->id : file->parent, client.id);
  call.answer(msg::GetAttributes::Reply{to_.attributes.of(*file)});
}

void NameService::serve(ClientRecord& client, const msg::ReadDirectory& request, const Call& call) {
  const auto directory = state_.directory(request.directory);
  if (!directory) return call.fail(directory.error());
  to_.notices.watch(request.directory, client.id);
  const auto& children = (*directory)->as_directory.children;
  const auto& pending = (*directory)->as_directory.pending_children;
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
      reply.entries.push_back({name, to_.attributes.of(**seen)});
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

void NameService::serve(ClientRecord& client, const msg::SetAttributes& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "setattr");
  ChangeAttributes command{request, pool_.wall_ns(), pool_.has_drain()};
  if (!file->parent) {
    // Pending or removed: the journal does not know the file, so it does not get the change.
    const auto outcome = state_.apply_unjournalled(command);
    if (!outcome) return call.fail(outcome.error());
    return call.answer(msg::SetAttributes::Reply{to_.attributes.of(*state_.file(request.file))});
  }
  const ClientId id = client.id;
  command.caller = {request.client, call.id()};
  answer_when_durable(pool_, std::move(command), call,
                      [this, file = request.file](const Affected&) -> rpc::Answer {
                        const File* now_at = state_.file(file);
                        if (now_at == nullptr) {
                          return tl::unexpected(rpc::Failure{{Code::kStale, 0, "setattr"}, {}, {}});
                        }
                        return msg::SetAttributes::Reply{to_.attributes.of(*now_at)};
                      });
  to_.notices.file_changed(request.file, id);
}

/// Refuses a name that could not be drained. Otherwise executes the command, which makes a file of
/// that name, and answers with the file's attributes.
template <class M, class Command>
void NameService::make_file(ClientRecord& client, const M& request, Command command,
                            const Call& call) {
  if (const auto may = check_drainable(pool_, request.parent, request.name); !may) {
    return call.fail(may.error());
  }
  answer_when_durable(
      pool_, std::move(command), call, [this](const Affected& outcome) -> rpc::Answer {
        const File* made = state_.file(outcome.file);
        return typename M::Reply{made == nullptr ? Attributes{} : to_.attributes.of(*made)};
      });
  to_.notices.entry_changed(request.parent, request.name, client.id);
}

/// Returns the mode of what the request makes.
template <class M>
std::uint32_t NameService::mode_of_new(const M& request) const {
  const auto directory = state_.directory(request.parent);
  return directory ? mode_for_new(**directory, request.mode, request.unmasked) : request.mode;
}

void NameService::serve(ClientRecord& client, const msg::MakeDirectory& request, const Call& call) {
  make_file(client, request,
            AddDirectory{FileId{pool_.next_id()},
                         request.parent,
                         request.name,
                         mode_of_new(request),
                         request.uid,
                         request.gid,
                         pool_.wall_ns(),
                         pool_.has_drain(),
                         {request.client, call.id()}},
            call);
}

/// Returns true when the drain directory must have other files before it has the file under that
/// name.
bool NameService::must_wait(const File& file, FileId folder, std::string_view name) const {
  const File* const at = state_.file(folder);
  const bool can_wait = file.type == FileType::kRegular || file.type == FileType::kSymlink;
  if (!pool_.has_drain() || at == nullptr || !can_wait) return false;
  return to_.sets.would_hold(file, *at, name);
}

/// Returns true when the drain directory must have other files before the new names of the rename.
bool NameService::must_wait(const msg::Rename& request) const {
  const auto moved = state_.lookup(request.from_parent, request.from_name, {});
  if (!moved || !pool_.has_drain() || !state_.set_names().has_directories()) return false;
  const auto waits = [&](const File& file, FileId folder, std::string_view name) {
    if (file.type != FileType::kDirectory) return must_wait(file, folder, name);
    // An object store moves the files of a folder one by one.
    return is_object_store(pool_.config().pool.drain_directory) ||
           to_.sets.directories().is_unfinished(file);
  };
  if (waits(**moved, request.to_parent, request.to_name)) return true;
  const auto other = state_.lookup(request.to_parent, request.to_name, {});
  return request.exchange && other && waits(**other, request.from_parent, request.from_name);
}

void NameService::serve(ClientRecord& client, const msg::MakeSymlink& request, const Call& call) {
  File link;
  link.id = kRootFile;  // no link has this number
  link.type = FileType::kSymlink;
  link.target = request.target;
  make_file(client, request,
            AddSymlink{FileId{pool_.next_id()},
                       request.parent,
                       request.name,
                       request.target,
                       request.uid,
                       request.gid,
                       pool_.wall_ns(),
                       pool_.has_drain(),
                       {request.client, call.id()},
                       must_wait(link, request.parent, request.name)},
            call);
}

void NameService::serve(ClientRecord& client, const msg::MakeNode& request, const Call& call) {
  make_file(client, request,
            AddNode{FileId{pool_.next_id()},
                    request.parent,
                    request.name,
                    request.type,
                    mode_of_new(request),
                    request.uid,
                    request.gid,
                    request.device,
                    pool_.wall_ns(),
                    pool_.has_drain(),
                    {request.client, call.id()}},
            call);
}

void NameService::serve(ClientRecord& client, const msg::MakeLink& request, const Call& call) {
  if (const auto may = check_drainable(pool_, request.parent, request.name); !may) {
    return call.fail(may.error());
  }
  to_.notices.watch(request.parent, client.id);
  const File* const file = state_.file(request.file);
  if (file != nullptr && !file->parent && !file->pending && client.writes(file->id)) {
    // Only the client's memory has such a file: the commit that follows makes the name durable.
    const auto named =
        state_.pending().give_name(request.file, request.parent, request.name, client.id);
    if (!named) return call.fail(named.error());
    return call.answer(msg::MakeLink::Reply{to_.attributes.of(*file)});
  }
  answer_when_durable(
      pool_,
      AddLink{request.file,
              request.parent,
              request.name,
              pool_.wall_ns(),
              pool_.has_drain(),
              {request.client, call.id()},
              file != nullptr && must_wait(*file, request.parent, request.name)},
      call, [this](const Affected& outcome) -> rpc::Answer {
        const File* linked = state_.file(outcome.file);
        return msg::MakeLink::Reply{linked == nullptr ? Attributes{} : to_.attributes.of(*linked)};
      });
  to_.notices.file_changed(request.file, client.id);
  to_.notices.entry_changed(request.parent, request.name, client.id);
  to_.sets.set_changed(request.parent, request.name);
}

/// Returns how many committed names the file has.
std::uint32_t NameService::names_of(FileId file) const {
  const File* const at = state_.file(file);
  if (at == nullptr || !at->parent) return 0;
  return 1 + static_cast<std::uint32_t>(at->links.size());
}

void NameService::serve(ClientRecord&, const msg::ReadSymlink& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "readlink");
  if (file->type != FileType::kSymlink) return call.fail(Code::kInvalidArgument, "readlink");
  call.answer(msg::ReadSymlink::Reply{file->target});
}

void NameService::serve(ClientRecord& client, const msg::Remove& request, const Call& call) {
  const auto seen = state_.lookup(request.parent, request.name, client.id);
  if (!seen) return call.fail(seen.error());
  const FileId id = (*seen)->id;
  const bool pending = !(*seen)->parent;
  to_.notices.watch(request.parent, client.id);
  if (pending) {
    if (request.directory) return call.fail(Code::kNotDirectory, "rmdir");
    state_.pending().drop(id);
    to_.notices.file_changed(id, client.id);
    // Without a committed file under the pending one, nothing durable has changed.
    const auto covered = state_.lookup(request.parent, request.name, client.id);
    if (!covered) return call.answer(msg::Remove::Reply{id, {}, 0});
  }
  to_.notices.file_changed(id, client.id);
  to_.notices.entry_changed(request.parent, request.name, client.id);
  answer_when_durable(pool_,
                      RemoveName{request.parent,
                                 request.name,
                                 request.directory,
                                 pool_.wall_ns(),
                                 pool_.has_drain(),
                                 {request.client, call.id()}},
                      call, [this, id, parent = request.parent](const Affected&) -> rpc::Answer {
                        return msg::Remove::Reply{id, to_.attributes.of_id(parent), names_of(id)};
                      });
  to_.sets.set_changed(request.parent, request.name);
}

/// Refuses a rename of `moved` after which paths could not be drained.
Status NameService::check_move(const msg::Rename& request, const File& moved,
                               ClientId viewer) const {
  STDCHK_TRY(check_drainable(pool_, request.to_parent, request.to_name));
  STDCHK_TRY(check_drainable_below(pool_, moved, request.to_parent, request.to_name));
  if (!request.exchange) return {};
  const auto other = state_.lookup(request.to_parent, request.to_name, viewer);
  if (!other) return {};
  return check_drainable_below(pool_, **other, request.from_parent, request.from_name);
}

void NameService::serve(ClientRecord& client, const msg::Rename& request, const Call& call) {
  const auto seen = state_.lookup(request.from_parent, request.from_name, client.id);
  if (!seen) return call.fail(seen.error());
  if (const Status may = check_move(request, **seen, client.id); !may)
    return call.fail(may.error());
  const FileId moved = (*seen)->id;
  to_.notices.entry_changed(request.from_parent, request.from_name, client.id);
  to_.notices.entry_changed(request.to_parent, request.to_name, client.id);
  if (!(*seen)->parent) {
    const auto target = state_.lookup(request.to_parent, request.to_name, client.id);
    if (request.exchange) return call.fail(Code::kBusy, "rename");
    if (target && request.no_replace) return call.fail(Code::kExists, "rename");
    const FileId replaced = target && *target != *seen ? (*target)->id : FileId{};
    if (const auto status = state_.pending().rename(moved, request.to_parent, request.to_name);
        !status) {
      return call.fail(status.error());
    }
    return call.answer(msg::Rename::Reply{replaced, names_of(replaced), moved});
  }
  const bool adds = to_.rewrites.extends_complete_set(request.to_parent, request.to_name);
  if (!request.exchange) to_.replaced.keep_file_at(request.to_parent, request.to_name);
  answer_when_durable(
      pool_,
      RenameName{request.from_parent,
                 request.from_name,
                 request.to_parent,
                 request.to_name,
                 request.no_replace,
                 request.exchange,
                 pool_.wall_ns(),
                 pool_.has_drain(),
                 {request.client, call.id()},
                 true,
                 must_wait(request)},
      call, [this](const Affected& outcome) -> rpc::Answer {
        return msg::Rename::Reply{outcome.replaced, names_of(outcome.replaced), outcome.file};
      });
  to_.notices.file_changed(moved, client.id);
  const File* const image = state_.file(moved);
  if (adds && image != nullptr && image->newest.version > 0 && image->parent == request.to_parent &&
      image->name == request.to_name) {
    const auto set = state_.set_names().image_name(image->parent, image->name);
    const std::uint64_t begun = image->newest.written - 1;
    pool_.execute(
        BeginGeneration{image->parent, set->application, begun, 0, {{set->timestep, begun}}},
        [](const Result<Affected>&) {});
  }
  to_.sets.set_changed(request.from_parent, request.from_name);
  to_.sets.set_changed(request.to_parent, request.to_name);
}

void NameService::serve(ClientRecord& client, const msg::SetXattr& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "setxattr");
  ChangeXattr command{request, pool_.wall_ns(), {}, pool_.has_drain()};
  if (request.name.starts_with(kXattrRule) && !request.remove) {
    const std::string_view key = std::string_view(request.name).substr(kXattrRule.size());
    const auto valid = check_rule(key, request.value);
    if (!valid) return call.fail(Code::kInvalidArgument, "setxattr", valid.error().text);
  }
  if (request.name.starts_with("user.stdchk.")) {
    to_.sets.run();  // sets that are whole under the old rules stay so
    to_.sets.examine_all();
  }
  if (!file->parent) {
    const auto outcome = state_.apply_unjournalled(command);
    if (!outcome) return call.fail(outcome.error());
    return call.answer(msg::SetXattr::Reply{to_.attributes.of_id(request.file)});
  }
  to_.notices.file_changed(request.file, client.id);
  command.caller = {request.client, call.id()};
  answer_when_durable(pool_, std::move(command), call,
                      [this, at = request.file](const Affected&) -> rpc::Answer {
                        return msg::SetXattr::Reply{to_.attributes.of_id(at)};
                      });
}

void NameService::serve(ClientRecord&, const msg::GetXattrs& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "getxattr");
  call.answer(msg::GetXattrs::Reply{{file->xattrs.begin(), file->xattrs.end()}});
}

void NameService::serve(ClientRecord&, const msg::GetPolicy& request, const Call& call) {
  const File* file = state_.file(request.file);
  if (file == nullptr) return call.fail(Code::kStale, "get policy");
  call.answer(msg::GetPolicy::Reply{file->as_directory.policy, pool_.policy(*file)});
}

void NameService::serve(ClientRecord& client, const msg::SetPolicy& request, const Call& call) {
  for (const PolicySetting& setting : request.changes.settings) {
    if (auto problem = check_setting(setting)) {
      return call.fail(problem->error.code, "set policy", std::move(problem->text));
    }
  }
  if (const auto folder = state_.directory(request.directory)) {
    if (auto problem = check_change(pool_.policy(**folder), request.changes)) {
      return call.fail(problem->error.code, "set policy", std::move(problem->text));
    }
  }
  to_.notices.file_changed(request.directory, client.id);
  to_.sets.run();  // sets that are whole under the old policy stay so
  to_.sets.examine_all();
  answer_when_durable(
      pool_,
      SetPolicy{request.directory, request.changes, pool_.wall_ns(), {request.client, call.id()}},
      call, [](const Affected&) -> rpc::Answer { return msg::SetPolicy::Reply{}; });
}

void NameService::serve(ClientRecord&, const msg::ListSets& request, const Call& call) {
  const auto folder = state_.directory(request.directory);
  if (!folder) return call.fail(folder.error());
  const Policy holds = pool_.policy(**folder);
  const std::vector<ImageSet> sets = to_.sets.sets_in(**folder, holds);
  const SetsPlan plan = plan_sets(sets, holds, pool_.wall_ns());
  msg::ListSets::Reply reply;
  reply.images_wanted = holds.get(PolicyKey::kImages);
  // The newest first: when a message cannot hold all, the oldest sets are left out.
  for (auto set = sets.rbegin(); set != sets.rend(); ++set) {
    if (reply.sets.size() == limits::kSetsMax) break;
    // A name that its parts do not give back is sent as a whole.
    const bool is_plain = !set->directory && set->name == set_name(set->application, set->timestep);
    const bool has_problem = reply.sets.size() < limits::kSetProblemsMax;
    std::string problem =
        has_problem ? why_incomplete(state_, **folder, *set, holds) : std::string();
    cut_text(problem, limits::kSetProblemBytesMax);
    reply.sets.push_back(
        {is_plain ? set->application : set->name, is_plain ? set->timestep : kNamedTimestep,
         set->images, std::min(set->drained, set->images), set->bytes, set->newest_ns,
         is_complete(*set, holds), set->pinned, plan.latest == set->name, std::move(problem)});
  }
  call.answer(std::move(reply));
}

/// A pending file that covered the one that was removed went with it. Its client was not told, and
/// has brought it back.
FileId NameService::drop_resumed(ClientRecord& client, const msg::Remove& request) {
  const File* file = state_.lookup(request.parent, request.name, client.id).value_or(nullptr);
  if (file == nullptr || file->parent) return {};
  const FileId id = file->id;
  state_.pending().drop(id);
  to_.notices.file_changed(id, client.id);
  return id;
}

}  // namespace stdchk::manager
