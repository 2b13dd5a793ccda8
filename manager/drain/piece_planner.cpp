#include "manager/drain/piece_planner.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"
#include "core/chunk/sealed_chunk.h"

namespace stdchk::manager {
namespace {

constexpr std::uint64_t kRequestBytesMax = 16 * limits::kMiB;
/// Interval of the warning about an encrypted file.
constexpr Duration kSealedAgain = std::chrono::seconds(60);

}  // namespace

bool PiecePlanner::plan(const File& file, DrainJob& job) {
  Plan plan{job, {}, {}};
  for (const auto& [id, status] : pool_.benefactors()) {
    if (load_.is_usable(id)) plan.any = id;
  }
  if (!plan.any) return false;
  for (std::uint32_t i = 0; i < file.newest.slices.size(); ++i) {
    if (!job.verified[i] && !plan_slice(file, i, plan)) return false;
  }
  for (auto& [id, request] : plan.open) job.requests.push_back(std::move(request));
  if (job.requests.empty()) {
    // The file consists of holes only: a request without pieces makes the temporary file.
    DrainRequest& request = job.requests.emplace_back();
    request.benefactor = plan.any;
    request.pieces.file = job.file;
    request.pieces.number = job.number;
  }
  return true;
}

/// Plans the piece of one slice. Returns false when nobody can write it now.
bool PiecePlanner::plan_slice(const File& file, std::uint32_t number, Plan& plan) {
  const State& state = pool_.state();
  const PackedSlice& slice = file.newest.slices[number];
  const Chunk chunk = state.chunks().get(slice.chunk);
  if (is_sealed(chunk.name)) {
    log::warning(
        "{} is encrypted, and benefactors have no key to drain it; copy it through a mount that "
        "has the key",
        state.path(file));
    failures_.failed_for(file.id, pool_.now(), kSealedAgain);
    return false;
  }
  msg::DrainPiece piece{slice.file_offset, slice.length, slice.chunk_offset, msg::kNoExtent,
                        chunk.length,      chunk.crc,    chunk.name};
  if (chunk.copies.empty()) {
    if (mirror_.blocks(file)) return false;
    DrainRequest& request = plan.add(plan.any, number, piece);
    request.pieces.base_path = plan.job.path =
        file.newest.aside == 0 ? state.path(file) : aside_path(file.id, file.newest.aside);
    request.pieces.base_uid = file.uid;  // a change that is not mirrored yet blocks the file above
    return true;
  }
  const auto copy = std::ranges::find_if(chunk.copies, [&](const Extent& at) {
    return load_.is_usable(at.benefactor) && !pool_.is_wrong(at);
  });
  if (copy == chunk.copies.end()) {
    const bool may_return =
        std::ranges::any_of(chunk.copies, [&](const Extent& at) { return pool_.is_readable(at); });
    failures_.waits_for_copies(file.id, pool_.now(), DrainLoad::kParked, may_return);
    return false;
  }
  piece.extent_offset = copy->offset;
  plan.add(copy->benefactor, number, piece);
  return true;
}

DrainRequest& PiecePlanner::Plan::add(BenefactorId benefactor, std::uint32_t number,
                                      const msg::DrainPiece& piece) {
  const auto is_full = [](const DrainRequest& request) {
    return request.bytes >= kRequestBytesMax ||
           request.pieces.pieces.size() == limits::kMapPageSlicesMax;
  };
  DrainRequest& request = open[benefactor];
  if (is_full(request)) job.requests.push_back(std::exchange(request, {}));
  request.benefactor = benefactor;
  request.pieces.file = job.file;
  request.pieces.number = job.number;
  request.pieces.pieces.push_back(piece);
  request.sources.push_back({number, piece.extent_offset});
  request.bytes += piece.length;
  return request;
}

}  // namespace stdchk::manager
