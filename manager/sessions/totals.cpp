#include "manager/sessions/totals.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "core/policy/image_name.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kExaminedMax = 1000;  ///< files examined for each new set
/// A job computes between two checkpoints. Sets that follow each other faster are copied files, and
/// say nothing about the drain.
constexpr Duration kOvertakenAfter = std::chrono::seconds(5);

/// The set that a file belongs to, for the order of sets.
struct SetOrder {
  FileId folder;
  std::string application;  ///< empty: the set is a directory
  std::uint64_t timestep = 0;

  bool is_before(const SetOrder& other) const {
    return folder == other.folder && application == other.application && timestep < other.timestep;
  }
};

/// Returns nothing for a file of no set. The number of a directory counts as its timestep: a
/// directory that is made later has a higher number.
std::optional<SetOrder> set_of(const State& state, const File& file) {
  if (const FileId directory = state.set_names().directory(file.id)) {
    return SetOrder{state.file(directory)->parent, {}, directory.value};
  }
  auto image = state.set_names().image_name(file.parent, file.name);
  if (!image) return std::nullopt;
  return SetOrder{file.parent, std::move(image->application), image->timestep};
}

}  // namespace

bool Totals::at_risk() {
  if (pool_.state().commits().undrained_single() > 0) return true;
  return pool_.state().commits().undrained_redundant() > 0 &&
         (parity_.lacks_parity() || copies_.lacks_undrained_copies());
}

std::pair<std::uint64_t, std::uint64_t> Totals::lent_and_free() const {
  std::pair<std::uint64_t, std::uint64_t> out;
  for (const auto& [id, status] : pool_.benefactors()) {
    if (status.info.state == msg::BenefactorState::kGone) continue;
    out.first += status.info.arena_bytes;
    out.second += pool_.space().free_bytes(id);
  }
  return out;
}

void Totals::sample() {
  const auto [lent, free] = lent_and_free();
  ledger_.note_fullness(lent - free, lent);
  ledger_.sample_risk(pool_.now(), at_risk());
}

void Totals::note_image(const File& file) {
  const State& state = pool_.state();
  const auto set = set_of(state, file);
  if (!set || file.newest.stored_bytes == 0) return;
  const auto interval =
      ledger_.begins_set(set->folder, set->application, set->timestep, pool_.now());
  if (!interval || *interval < kOvertakenAfter || !pool_.has_drain()) return;
  std::size_t examined = 0;
  for (const auto& [sequence, id] : state.commits().undrained()) {
    if (++examined > kExaminedMax) return;
    const File& other = *state.file(id);
    if (sets_.skips(other)) continue;
    const auto earlier = set_of(state, other);
    if (earlier && earlier->is_before(*set)) return ledger_.overtaken();
  }
}

void Totals::note_shortage(SessionRecord& session) {
  const bool lends = std::ranges::any_of(pool_.benefactors(), [this](const auto& each) {
    return each.second.peer != nullptr && pool_.space().usable(each.first);
  });
  if (session.short_since || !lends) return;
  session.short_since = pool_.now();
  sample();
}

void Totals::end_shortage(SessionRecord& session) {
  if (session.short_since) ledger_.waited_for_space(pool_.now() - *session.short_since);
  session.short_since.reset();
}

std::uint64_t Totals::quarantined_bytes() const {
  std::uint64_t out = 0;
  for (const auto& [id, status] : pool_.benefactors()) {
    pool_.space().for_each_quarantined(id, [&](Range range) { out += range.length; });
  }
  return out;
}

msg::PoolTotals Totals::all() const {
  msg::PoolTotals out = ledger_.totals();
  const History& history = pool_.state().history();
  out.images = history.images;
  out.written_bytes = history.written_bytes;
  out.stored_bytes = history.stored_bytes;
  out.drained_images = history.drained_images;
  out.drained_bytes = history.drained_bytes;
  return out;
}

}  // namespace stdchk::manager
