#include "manager/drain/drained_verifier.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kRequestBytesMax = 16 * limits::kMiB;

/// A part of a chunk has no checksum. Files that a pool has found in its drain directory may have
/// no checksums at all.
bool can_be_compared(const PackedSlice& slice, const Chunk& chunk) {
  return slice.length == chunk.length && (chunk.crc != 0 || chunk.name.is_named());
}

/// Returns true when the file has parts of chunks, and memory has all of it.
bool should_drain_again(const ChunkTable& chunks, const VersionData& version) {
  const auto is_part = [&](const PackedSlice& slice) {
    return slice.length != chunks.length(slice.chunk);
  };
  const auto in_memory = [&](const PackedSlice& slice) { return chunks.has_copies(slice.chunk); };
  return std::ranges::any_of(version.slices, is_part) &&
         std::ranges::all_of(version.slices, in_memory);
}

}  // namespace

void DrainedVerifier::verify(FileId file, const FileFingerprint& seen, Done done) {
  const File* const of = pool_.state().file(file);
  if (of == nullptr) return done(Verdict::kUnknown);
  const auto path = drain_.drained_path(*of, of->newest);
  if (!path) return done(Verdict::kUnknown);
  if (should_drain_again(pool_.state().chunks(), of->newest)) return done(Verdict::kChanged);
  const auto same = std::ranges::find_if(jobs_, [&](const Job& job) {
    return job.file == file && job.version == of->newest.version && job.seen == seen;
  });
  if (same != jobs_.end()) return same->done.push_back(std::move(done));
  log::info("{} has changed in the drain directory, or was not looked at before: it is compared",
            pool_.state().path(*of));
  // In a new pool, `safe` has all files compared. Drains that end come before such comparisons.
  const bool is_first = !of->newest.evicted && !jobs_.empty();
  const auto at = is_first ? std::next(jobs_.begin()) : jobs_.end();
  const auto job = jobs_.insert(at, {file, of->newest.version, seen, *path, 0, {}});
  job->done.push_back(std::move(done));
  if (jobs_.size() == 1) step();
}

/// Returns the file of the job under way; nullptr when the job's version or path is no longer its.
const File* DrainedVerifier::current() const {
  const Job& job = jobs_.front();
  const File* const file = pool_.state().file(job.file);
  const bool is_same = file != nullptr && file->newest.version == job.version &&
                       file->newest.drained && drain_.drained_path(*file, file->newest) == job.path;
  return is_same ? file : nullptr;
}

msg::DrainPieces DrainedVerifier::next_pieces(const File& file, Job& job) const {
  msg::DrainPieces request{job.file, 0, job.path, {}, file.uid};
  std::uint64_t bytes = 0;
  const PackedSlices& slices = file.newest.slices;
  for (; job.next < slices.size(); ++job.next) {
    if (bytes >= kRequestBytesMax || request.pieces.size() == limits::kMapPageSlicesMax) break;
    const PackedSlice& slice = slices[job.next];
    const Chunk chunk = pool_.state().chunks().get(slice.chunk);
    if (!can_be_compared(slice, chunk)) continue;
    request.pieces.push_back({slice.file_offset, slice.length, slice.chunk_offset, msg::kNoExtent,
                              chunk.length, chunk.crc, chunk.name});
    bytes += slice.length;
  }
  return request;
}

void DrainedVerifier::step() {
  const File* const file = current();
  if (file == nullptr) return end(Verdict::kUnknown);
  msg::DrainPieces request = next_pieces(*file, jobs_.front());
  if (request.pieces.empty()) return check_file_again();
  const auto benefactor = pool_.some_benefactor();
  if (!benefactor) return end(Verdict::kUnknown);
  pool_.peer_of(*benefactor)
      ->call(std::move(request), limits::kOperationDeadline,
             [this, alive = pool_.alive()](const rpc::Answer& answer) {
               if (!alive.expired()) compared(answer);
             });
}

void DrainedVerifier::compared(const rpc::Answer& answer) {
  const auto* const reply = answer ? std::get_if<msg::DrainPieces::Reply>(&*answer) : nullptr;
  if (reply == nullptr) return end(Verdict::kUnknown);
  if (!reply->corrupt.empty()) return end(Verdict::kChanged);
  step();
}

/// All bytes are right. A file that has another fingerprint by now was changed meanwhile.
void DrainedVerifier::check_file_again() {
  fingerprints_.read(
      {jobs_.front().path}, limits::kCallDeadline,
      [this,
       alive = pool_.alive()](const std::optional<std::vector<FileFingerprint>>& fingerprints) {
        if (alive.expired()) return;
        const Job& job = jobs_.front();
        const bool same = fingerprints && fingerprints->front() == job.seen && current() != nullptr;
        if (same) fingerprints_.add(pool_.state(), job.file, job.version, job.seen);
        end(same ? Verdict::kSame : Verdict::kUnknown);
      });
}

void DrainedVerifier::end(Verdict verdict) {
  const Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (!jobs_.empty()) step();
  for (const Done& done : job.done) done(verdict);
}

}  // namespace stdchk::manager
