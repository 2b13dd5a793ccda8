#include "manager/drain/drain_checks.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {

void DrainChecks::look_up(const std::vector<FileId>& files, Time deadline, Done done) {
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
  pool_.peer_of(*benefactor)
      ->call(std::move(request), left,
             [this, alive = pool_.alive(), looked = std::move(looked),
              done = std::move(done)](const rpc::Answer& answer) {
               if (alive.expired()) return;
               if (!answer) return done(fail(answer.error().error));
               const auto* reply = std::get_if<msg::FindDrained::Reply>(&*answer);
               if (reply == nullptr) return done(fail(Code::kMalformed, "manager.find_drained"));
               done(judge(looked, reply->missing));
             });
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
      lose(*file);
    }
  }
  return found;
}

void DrainChecks::lose(const File& file) {
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
  pool_.execute(DrainLost{id, file.newest.version}, [](const Result<Outcome>&) {});
  copies_.examine(pool_.state().file(id)->newest);
  notices_.file_changed(id, {});
}

}  // namespace stdchk::manager
