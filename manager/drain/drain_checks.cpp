#include "manager/drain/drain_checks.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {

/// A Waiting is a look-up of drained files without its answer yet.
struct DrainChecks::Waiting {
  Found found;
  Done done;
  Unknown unknown = Unknown::kIsCompared;
  Time deadline{};
  std::size_t compared = 0;  ///< files whose comparison is under way
  TimerId timer;
  bool over = false;
};

/// Returns true when the right size, time and owner are enough for a file with an unknown
/// fingerprint. Memory has nothing of an evicted file, so a comparison could repair nothing there.
bool DrainChecks::is_believed_unknown(const File& file, Unknown unknown) {
  if (unknown == Unknown::kIsComparedInMemory) return file.newest.evicted;
  return unknown == Unknown::kIsBelieved;
}

void DrainChecks::look_up(const std::vector<FileId>& files, Unknown unknown, Time deadline,
                          Done done) {
  std::vector<Looked> looked;
  msg::FindDrained request;
  for (const FileId id : files) {
    const File* const file = pool_.state().file(id);
    if (file == nullptr || !file->parent || !file->newest.drained) continue;
    const auto path = drain_.drained_path(*file, file->newest);
    if (!path) continue;
    looked.push_back({id,
                      file->newest.version,
                      {*path, file->newest.size_bytes, file->newest.mtime_ns, file->uid}});
    request.files.push_back(looked.back().wanted);
  }
  if (looked.empty()) return done(Found{});
  const auto benefactor = pool_.some_benefactor();
  if (!benefactor) return done(fail(Code::kBusy, "manager.find_drained: there is no benefactor"));
  const Duration left = std::min<Duration>(limits::kCallDeadline, deadline - pool_.now());
  const auto waiting = std::make_shared<Waiting>();
  waiting->done = std::move(done);
  waiting->unknown = unknown;
  waiting->deadline = deadline;
  pool_.peer_of(*benefactor)
      ->call(std::move(request), left,
             [this, alive = pool_.alive(), looked = std::move(looked),
              waiting](const rpc::Answer& answer) {
               if (alive.expired()) return;
               if (!answer) return waiting->done(fail(answer.error().error));
               const auto* reply = std::get_if<msg::FindDrained::Reply>(&*answer);
               if (reply == nullptr) {
                 return waiting->done(fail(Code::kMalformed, "manager.find_drained"));
               }
               waiting->found = judge(looked, reply->missing);
               check_fingerprints(looked, waiting);
             });
}

void DrainChecks::check_fingerprints(std::vector<Looked> looked,
                                     const std::shared_ptr<Waiting>& waiting) {
  std::erase_if(looked,
                [&](const Looked& one) { return !waiting->found.there.contains(one.file); });
  if (!fingerprints_.can_read() || looked.empty()) return waiting->done(waiting->found);
  std::vector<std::string> paths;
  paths.reserve(looked.size());
  for (const Looked& one : looked) paths.push_back(one.wanted.path);
  const Duration left = std::min<Duration>(limits::kCallDeadline, waiting->deadline - pool_.now());
  fingerprints_.read(
      std::move(paths), left,
      [this, alive = pool_.alive(), looked = std::move(looked),
       waiting](const std::optional<std::vector<FileFingerprint>>& fingerprints) {
        if (alive.expired()) return;
        if (fingerprints) return compare_fingerprints(looked, *fingerprints, waiting);
        // A hanging file must not keep the memory of all files from being given up.
        if (waiting->unknown == Unknown::kIsBelieved) {
          return waiting->done(waiting->found);
        }
        waiting->done(fail(Code::kBusy, "the manager's look at the drain directory"));
      });
}

/// Has files compared whose fingerprint is not the known one. Answers when all comparisons have
/// ended, or shortly before the deadline. A comparison goes on then, and its result counts for the
/// next look-up.
void DrainChecks::compare_fingerprints(const std::vector<Looked>& looked,
                                       const std::vector<FileFingerprint>& fingerprints,
                                       const std::shared_ptr<Waiting>& waiting) {
  std::vector<std::size_t> differ;
  for (std::size_t i = 0; i < looked.size(); ++i) {
    const File* const file = pool_.state().file(looked[i].file);
    const bool is_same_version =
        file != nullptr && file->newest.drained && file->newest.version == looked[i].version;
    const FileFingerprint known = is_same_version ? fingerprints_.of(*file) : FileFingerprint{};
    const bool is_believed =
        is_same_version && !known.is_known() && is_believed_unknown(*file, waiting->unknown);
    // Without a fingerprint, the manager's host cannot look at the file: the benefactor's word
    // counts.
    if (is_same_version && (!fingerprints[i].is_known() || fingerprints[i] == known || is_believed))
      continue;
    waiting->found.there.erase(looked[i].file);
    if (is_same_version) differ.push_back(i);
  }
  if (differ.empty()) return waiting->done(waiting->found);
  const Time until = std::max(pool_.now(), waiting->deadline - limits::kHeartbeatInterval);
  waiting->compared = differ.size();
  waiting->timer = pool_.reactor().schedule_at(until, [alive = pool_.alive(), waiting] {
    if (alive.expired()) return;
    waiting->over = true;
    waiting->done(fail(Code::kBusy, "the comparison of drained files with their checksums"));
  });
  for (const std::size_t i : differ) {
    verifier_.verify(looked[i].file, fingerprints[i],
                     [this, one = looked[i], waiting](DrainedVerifier::Verdict verdict) {
                       verified(one, verdict, *waiting);
                     });
  }
}

void DrainChecks::verified(const Looked& looked, DrainedVerifier::Verdict verdict,
                           Waiting& waiting) {
  const File* const file = pool_.state().file(looked.file);
  const bool is_same_version =
      file != nullptr && file->newest.drained && file->newest.version == looked.version;
  if (is_same_version && verdict == DrainedVerifier::Verdict::kSame) {
    waiting.found.there.insert(looked.file);
  } else if (is_same_version && verdict == DrainedVerifier::Verdict::kChanged) {
    waiting.found.missing.insert(looked.file);
    drain_again_or_report_loss(*file);
  }
  if (--waiting.compared > 0 || waiting.over) return;
  pool_.reactor().cancel(waiting.timer);
  waiting.done(waiting.found);
}

DrainChecks::Found DrainChecks::judge(const std::vector<Looked>& looked,
                                      const std::vector<std::uint32_t>& missing) {
  Found found;
  for (std::uint32_t i = 0; i < looked.size(); ++i) {
    const Looked& one = looked[i];
    const File* const file = pool_.state().file(one.file);
    if (file == nullptr || !file->parent || !file->newest.drained ||
        file->newest.version != one.version || file->newest.mtime_ns != one.wanted.mtime_ns ||
        file->uid != one.wanted.uid ||
        drain_.drained_path(*file, file->newest) != one.wanted.path) {
      continue;
    }
    if (std::ranges::find(missing, i) == missing.end()) {
      found.there.insert(one.file);
    } else {
      found.missing.insert(one.file);
      drain_again_or_report_loss(*file);
    }
  }
  return found;
}

void DrainChecks::drain_again_or_report_loss(const File& file) {
  const ChunkTable& chunks = pool_.state().chunks();
  const auto in_memory = [&](const PackedSlice& slice) { return chunks.has_copies(slice.chunk); };
  const std::string path = pool_.state().path(file);
  const PackedSlices& slices = file.newest.slices;
  if (!slices.empty() && std::ranges::none_of(slices, in_memory)) {
    log::error("{} is missing or changed in the drain directory, and memory does not have it",
               path);
    return;
  }
  const bool whole = std::ranges::all_of(slices, in_memory);
  log::warning("{} is missing or changed in the drain directory; it is drained again{}", path,
               whole ? "" : ", but memory lacks a part of it");
  const FileId id = file.id;
  pool_.execute(DrainLost{id, file.newest.version}, [](const Result<Affected>&) {});
  copies_.examine(pool_.state().file(id)->newest);
  notices_.file_changed(id, {});
}

}  // namespace stdchk::manager
