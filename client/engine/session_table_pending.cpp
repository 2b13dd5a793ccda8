// Files without a version. The manager keeps their names and attributes only in its memory. So the
// client remembers its changes of them, and reports them to a restarted manager.
#include <memory>
#include <type_traits>
#include <utility>

#include "client/engine/session_table.h"

namespace stdchk::client {
namespace {

template <class M, class... Of>
constexpr bool kIsOneOf = (std::is_same_v<M, Of> || ...);

template <class M>
constexpr bool kChangesPending =
    kIsOneOf<M, msg::SetAttributes, msg::SetXattr, msg::Rename, msg::Remove, msg::MakeLink>;

/// Returns true when the manager may or may not have executed the request that failed.
bool is_outcome_unknown(Code code) {
  return code == Code::kManagerLost || code == Code::kDeadline || code == Code::kPeerLost ||
         code == Code::kCancelled || code == Code::kMalformed;
}

}  // namespace

SessionPtr SessionTable::pending(FileId parent, std::string_view name) const {
  const auto found = pending_.find({parent, std::string(name)});
  if (found == pending_.end()) return nullptr;
  SessionPtr session = find(found->second);
  return session != nullptr && session->resumer().is_pending() ? session : nullptr;
}

/// Records the name of a file without a version. Without a `parent`, the file has no name.
void SessionTable::note_name(Session& session, FileId parent, std::string_view name) {
  if (!session.resumer().is_pending()) return;
  drop_name(session);
  session.resumer().renamed(parent, name);
  if (parent) pending_[{parent, std::string(name)}] = session.file();
}

void SessionTable::drop_name(const Session& session) {
  const auto found = pending_.find({session.resumer().parent(), session.resumer().name()});
  // The name may be another file's by now.
  if (found != pending_.end() && found->second == session.file()) pending_.erase(found);
}

/// Returns the session of the file without a version that the request is about, or nullptr.
SessionPtr SessionTable::pending_of(const msg::Request& request) const {
  const SessionPtr found = std::visit(
      [&]<class M>(const M& one) STDCHK_REQUIRES(engine_lock) -> SessionPtr {
        if constexpr (kIsOneOf<M, msg::SetAttributes, msg::SetXattr, msg::GetAttributes,
                               msg::GetXattrs, msg::MakeLink>) {
          return find(one.file);
        } else if constexpr (kIsOneOf<M, msg::Lookup, msg::Remove>) {
          return pending(one.parent, one.name);
        } else if constexpr (std::is_same_v<M, msg::OpenSession>) {
          return one.parent ? pending(one.parent, one.name) : find(one.file);
        } else if constexpr (std::is_same_v<M, msg::Rename>) {
          const SessionPtr from = pending(one.from_parent, one.from_name);
          return from != nullptr ? from : pending(one.to_parent, one.to_name);
        } else {
          return nullptr;
        }
      },
      request);
  return found != nullptr && found->resumer().is_pending() ? found : nullptr;
}

void SessionTable::follow(Work::Call& call) {
  const SessionPtr about = pending_of(call.request);
  if (about == nullptr) return;
  call.may_go = [this, weak = std::weak_ptr(about), before = std::move(call.may_go)] {
    if (before && !before()) return false;
    const Lock lock(shared_.mutex);
    const SessionPtr known = weak.lock();
    return known == nullptr || !known->resumer().is_unknown();
  };
  const bool changes =
      std::visit([]<class M>(const M&) { return kChangesPending<M>; }, call.request);
  if (!changes) return;
  call.done = [this, request = call.request, weak = std::weak_ptr(about),
               done = std::move(call.done)](rpc::Answer answer) {
    {
      const Lock lock(shared_.mutex);
      const SessionPtr changed = weak.lock();
      if (answer.has_value()) {
        note_change(request, *answer);
      } else if (changed != nullptr && is_outcome_unknown(answer.error().error.code)) {
        changed->resumer().forbid_resume();
      }
    }
    done(std::move(answer));
  };
}

/// Records a change that the manager has made. Answers arrive in the order of the changes.
void SessionTable::note_change(const msg::Request& request, const msg::Reply& reply) {
  if (const auto* change = std::get_if<msg::SetAttributes>(&request)) {
    if (const SessionPtr changed = find(change->file)) changed->resumer().changed(*change);
  } else if (const auto* xattr = std::get_if<msg::SetXattr>(&request)) {
    if (const SessionPtr changed = find(xattr->file)) changed->resumer().changed(*xattr);
  } else if (const auto* removed = std::get_if<msg::Remove::Reply>(&reply)) {
    if (const SessionPtr changed = find(removed->file)) note_name(*changed, {}, {});
  } else if (const auto* made = std::get_if<msg::MakeLink>(&request)) {
    if (const SessionPtr named = find(made->file)) note_name(*named, made->parent, made->name);
  } else if (const auto* rename = std::get_if<msg::Rename>(&request)) {
    if (rename->exchange) return;
    const SessionPtr moved = pending(rename->from_parent, rename->from_name);
    const SessionPtr replaced = pending(rename->to_parent, rename->to_name);
    if (replaced != nullptr && replaced != moved) note_name(*replaced, {}, {});
    if (moved != nullptr) note_name(*moved, rename->to_parent, rename->to_name);
  }
}

}  // namespace stdchk::client
