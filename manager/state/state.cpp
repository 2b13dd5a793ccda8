#include "manager/state/state.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <variant>

#include "manager/state/batch_commands.h"
#include "manager/state/link_commands.h"
#include "manager/state/name_commands.h"
#include "manager/state/version_commands.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kStripesTogether = 4096;  // number of stripes in one record of a snapshot

RestoreFile restore_of(const Catalog& catalog, const File& file) {
  const VersionData& newest = file.newest;
  RestoreFile restore;
  restore.attributes = catalog.files.attributes(file);
  restore.parent = file.parent;
  restore.name = file.name;
  restore.target = file.target;
  restore.xattrs = {file.xattrs.begin(), file.xattrs.end()};
  restore.map = catalog.contents.map_page(newest, 0, newest.slices.size());
  restore.homes = catalog.contents.homes_of(newest);
  restore.drained = newest.drained;
  restore.evicted = newest.evicted;
  restore.in_drain = file.in_drain;
  restore.stale_in_drain = file.stale_in_drain;
  restore.sequence = newest.sequence;
  restore.opened = newest.opened;
  restore.written = newest.written;
  restore.policy = file.as_directory.policy;
  restore.copies = newest.copies;
  restore.drained_sets = file.as_directory.drained_sets;
  restore.held = catalog.mirror.held().contains(file.id);
  restore.partial = newest.partial;
  if (newest.version > 0 && !newest.drained) {
    restore.aside = newest.aside;
    restore.staged = newest.staged;
  }
  return restore;
}

}  // namespace

Result<Affected> State::apply(const Command& command) {
  const auto outcome = apply_unjournalled(command);
  if (!outcome) return outcome;
  if (!std::holds_alternative<RestoreCounters>(command)) counts_.count();
  std::visit(
      [this]<class C>(const C& one) {
        if constexpr (requires { one.caller; }) completion_records_.add(one.caller);
      },
      command);
  return outcome;
}

Result<Affected> State::apply_unjournalled(const Command& command) {
  return std::visit([this](const auto& one) { return run(one); }, command);
}

/// Passes the command to the part of the state that it changes.
template <class C>
Result<Affected> State::run(const C& command) {
  if constexpr (requires(NameCommands names) { names.run(command); }) {
    return NameCommands(catalog_).run(command);
  } else if constexpr (requires(LinkCommands links) { links.run(command); }) {
    return LinkCommands(catalog_).run(command);
  } else if constexpr (requires(BatchCommands batches) { batches.run(command); }) {
    return BatchCommands(catalog_, name_leases_).run(command);
  } else if constexpr (requires(VersionCommands versions) { versions.run(command); }) {
    return VersionCommands(catalog_).run(command);
  } else if constexpr (requires(ContentTable contents) { contents.run(command); }) {
    return catalog_.contents.run(command);
  } else if constexpr (std::is_same_v<C, AddBenefactor>) {
    return add_benefactor(command);
  } else if constexpr (std::is_same_v<C, BeginEpoch>) {
    counts_.begin(command.epoch);
  } else if constexpr (std::is_same_v<C, RestoreCounters>) {
    restore_counters(command);
  } else if constexpr (std::is_same_v<C, RestoreCalls>) {
    completion_records_.restore(command);
  } else if constexpr (std::is_same_v<C, Mirrored>) {
    catalog_.mirror.erase(command.sequence);
  } else {
    static_assert(std::is_same_v<C, RestoreMirror>, "a command that no part of the state runs");
    catalog_.mirror.restore(command.sequence, command.change);
  }
  return Affected{};
}

Result<Affected> State::add_benefactor(const AddBenefactor& command) {
  if (!command.id || command.id.value >= (1U << 24)) {
    return fail(Code::kInvalidArgument, "manager.add_benefactor");
  }
  benefactors_[command.id] = {command.id, command.life_high, command.life_low, command.arena_bytes,
                              command.host_name};
  return Affected{};
}

void State::restore_counters(const RestoreCounters& command) {
  counts_.restore(command);
  catalog_.sequence = std::max(catalog_.sequence, command.sequence);
  catalog_.mirror.restore_newest(command.mirror_sequence);
  catalog_.history = command.history;
}

void State::snapshot_files(const std::function<void(Command)>& emit) const {
  std::vector<const File*> todo{file(kRootFile)};
  std::vector<const File*> linked;
  while (!todo.empty()) {
    const File& at = *todo.back();
    todo.pop_back();
    emit(restore_of(catalog_, at));
    for (const auto& [name, id] : at.as_directory.children) {
      const File& child = *file(id);
      const bool is_first = child.parent == at.id && child.name == name;
      if (is_first) todo.push_back(&child);
      if (is_first && !child.links.empty()) linked.push_back(&child);
    }
  }
  for (const File* const of : linked) {
    for (const Link& link : of->links) {
      emit(RestoreLink{of->id, link.parent, link.name, link.in_drain, link.stale_in_drain});
    }
  }
}

void State::snapshot_stripes(const std::function<void(Command)>& emit) const {
  MakeStripes stripes;
  this->stripes().for_each([&](const Stripe& stripe) {
    MakeStripes::Stripe& out = stripes.stripes.emplace_back();
    for (std::size_t i = 0; i < stripe.members.size(); ++i) {
      (i < stripe.data ? out.data : out.parity).push_back(chunks().get(stripe.members[i]));
    }
    if (stripes.stripes.size() == kStripesTogether) emit(std::exchange(stripes, {}));
  });
  if (!stripes.stripes.empty()) emit(std::move(stripes));
}

void State::snapshot(const std::function<void(Command)>& emit) const {
  for (const auto& [id, record] : benefactors_) {
    emit(
        AddBenefactor{id, record.life_high, record.life_low, record.arena_bytes, record.host_name});
  }
  snapshot_files(emit);
  set_generations().snapshot(emit);
  snapshot_stripes(emit);
  for (const auto& [sequence, change] : mirror_queue()) emit(RestoreMirror{sequence, change});
  completion_records_.snapshot(emit);
  name_leases_.snapshot([this](FileId id) { return directory(id).has_value(); }, emit);
  RestoreCounters counters;
  counters.sequence = sequence();
  counters.mirror_sequence = mirror().newest();
  counters.history = history();
  counts_.snapshot(counters);
  emit(std::move(counters));
}

}  // namespace stdchk::manager
