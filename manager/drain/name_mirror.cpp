#include "manager/drain/name_mirror.h"

#include <algorithm>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/policy/image_name.h"

namespace stdchk::manager {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kMirrorScannedMax = 1000;
constexpr std::uint32_t kMirrorAttempts = 5;
constexpr Duration kRetryPause = 1s;

}  // namespace

bool same_or_below(const std::string& path, const std::string& directory) {
  return path.compare(0, directory.size(), directory) == 0 &&
         (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string aside_path(FileId file, std::uint64_t number) {
  return std::string(msg::kTemporaryFolder) + "/" + msg::temporary_name(file, number);
}

bool concerns(const msg::MirrorChange& change, FileId file, const std::string& path) {
  if (change.file == file || same_or_below(path, change.path)) return true;
  return change.kind == msg::MirrorKind::kRename && same_or_below(path, change.other_path);
}

bool is_outcome_unknown(const rpc::Answer& answer) {
  const Code code = answer.error().error.code;
  return code == Code::kPeerLost || code == Code::kDeadline || code == Code::kCancelled;
}

bool NameMirror::blocks(const File& file) const {
  const auto& queue = pool_.state().mirror_queue();
  if (queue.empty()) return false;
  if (queue.size() > kMirrorScannedMax) return true;
  const std::string path = pool_.state().path(file);
  return std::any_of(queue.begin(), queue.end(),
                     [&](const auto& change) { return concerns(change.second, file.id, path); });
}

bool NameMirror::waits_for_link(const File& file) const {
  const auto& queue = pool_.state().mirror_queue();
  if (queue.empty()) return false;
  const State& state = pool_.state();
  const auto set = state.set_names().set_of(file.parent, file.name);
  const File* const folder = set ? state.file(set->first) : nullptr;
  if (folder == nullptr) return false;
  const std::string path = state.path(*folder);
  const std::string link = path.empty() ? kLatestName : path + "/" + kLatestName;
  return std::ranges::any_of(queue, [&](const auto& change) { return change.second.path == link; });
}

bool NameMirror::try_end_wait() {
  if (pool_.now() >= names_from_) return true;
  const auto& known = pool_.state().benefactors();
  const bool all = std::all_of(known.begin(), known.end(), [this](const auto& record) {
    return pool_.peer_of(record.first) != nullptr;
  });
  if (!all) return false;
  names_from_ = pool_.now();
  hooks_.on_wait_ended();
  return true;
}

/// Drops a change that would keep a file for readers when no reader needs it. Returns true then.
bool NameMirror::skip(std::uint64_t sequence, const msg::MirrorChange& change) {
  if (change.kind != msg::MirrorKind::kSetAside) return false;
  if (pool_.state().files().is_aside(change.file, change.number)) return false;
  pool_.execute(Mirrored{sequence}, [](const Result<Affected>&) {});
  return true;
}

/// Chooses any benefactor for a change. After a lost answer the change may still be executed: the
/// same benefactor is asked again, because it serves requests in order. It is the only choice until
/// the lost request has expired.
rpc::Peer* NameMirror::peer() {
  if (pool_.now() >= late_) {
    const auto benefactor = pool_.some_benefactor();
    if (!benefactor) return nullptr;
    at_ = *benefactor;
  }
  return pool_.peer_of(at_);
}

void NameMirror::run() {
  const auto& queue = pool_.state().mirror_queue();
  if (in_flight_) return;
  while (!queue.empty() && skip(queue.begin()->first, queue.begin()->second)) {
  }
  if (queue.empty() || pool_.now() < next_ || !try_end_wait()) return;
  const auto& [sequence, change] = *queue.begin();
  // Waits for durability: a crash may undo the command, but not the loss of its file.
  if (!pool_.journal().is_mirror_change_durable(sequence) || hooks_.is_path_in_use(change)) return;
  rpc::Peer* const asked = peer();
  if (asked == nullptr) return;
  in_flight_ = true;
  late_ = pool_.now() + limits::kCallDeadline + kTransit;
  asked->call(change, limits::kCallDeadline,
              [this, alive = pool_.alive(), number = sequence](const rpc::Answer& answer) {
                if (!alive.expired()) mirrored(number, answer);
              });
}

void NameMirror::mirrored(std::uint64_t sequence, const rpc::Answer& answer) {
  const bool lost = !answer && is_outcome_unknown(answer);
  if (!lost) late_ = {};
  const msg::MirrorChange& change = pool_.state().mirror_queue().at(sequence);
  // A rename to the number of its own change keeps a version that waits for its name.
  const bool stages = change.kind == msg::MirrorKind::kRename && change.other_path.empty() &&
                      change.number == sequence;
  if (answer && (change.kind == msg::MirrorKind::kSetAside || stages)) {
    hooks_.on_set_aside(change.file, change.number);
  }
  if (!answer) {
    if (!lost) ++attempts_;
    // A file that was not moved would be looked for, and evicted from memory, under a wrong name.
    const bool moves =
        change.kind == msg::MirrorKind::kRename || change.kind == msg::MirrorKind::kSetAside;
    if (lost || attempts_ < kMirrorAttempts || moves) {
      in_flight_ = false;
      next_ = pool_.now() + kRetryPause;
      return;
    }
    log::error("a change of {} could not be repeated in the drain directory: {} {}", change.path,
               describe(answer.error().error), answer.error().detail);
  }
  attempts_ = 0;
  // The next change waits until this one is durably recorded, so that a restart cannot repeat it.
  pool_.execute(Mirrored{sequence}, [this, alive = pool_.alive()](const Result<Affected>&) {
    if (alive.expired()) return;
    in_flight_ = false;
    hooks_.on_changed();
  });
}

}  // namespace stdchk::manager
