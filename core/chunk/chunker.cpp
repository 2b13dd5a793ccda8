#include "core/chunk/chunker.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/assert.h"
#include "core/chunk/boundary_filter.h"

namespace stdchk {
namespace {

/// On average, one position in this number passes the filter.
constexpr std::uint64_t kFiltered = 65536 / boundary::kPass;

std::size_t find_scalar(const std::byte* bytes, std::size_t from, std::size_t to,
                        std::uint64_t below) {
  for (; from < to; ++from) {
    if (boundary::passes(bytes + from) && boundary::mix(bytes + from) < below) return from;
  }
  return to;
}

std::size_t find_wide(boundary::Search search, std::size_t step, const std::byte* bytes,
                      std::size_t from, std::size_t to, std::uint64_t below) {
  if (to - from < step) return find_scalar(bytes, from, to, below);
  boundary::Seen seen = search(bytes, from, to, below);
  // Searches the last step; it overlaps the previous step, which contains no boundary.
  if (!seen.found && seen.position < to) seen = search(bytes, to - step, to, below);
  return seen.position;
}

}  // namespace

std::vector<BoundaryEngine> boundary_engines() {
  std::vector<BoundaryEngine> engines = {BoundaryEngine::kScalar};
#if defined(__x86_64__)
  const bool has_bmi2 = __builtin_cpu_supports("bmi2") != 0;
  if (has_bmi2 && __builtin_cpu_supports("avx2") != 0) engines.push_back(BoundaryEngine::kAvx2);
  if (has_bmi2 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512vnni") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0) {
    engines.push_back(BoundaryEngine::kAvx512);
  }
#endif
  return engines;
}

BoundaryEngine best_boundary_engine() {
  static const BoundaryEngine best = boundary_engines().back();
  return best;
}

std::string_view name_of(BoundaryEngine engine) {
  switch (engine) {
    case BoundaryEngine::kAvx2:
      return "avx2";
    case BoundaryEngine::kAvx512:
      return "avx512";
    default:
      return "scalar";
  }
}

BoundaryFinder::BoundaryFinder(ChunkSizes sizes, BoundaryEngine engine) : engine_(engine) {
  static_assert(boundary::kReach <= kWindow && kSpreadMin == kFiltered);
  STDCHK_ASSERT(sizes.min >= kWindow && sizes.mean >= sizes.min + kSpreadMin);
  STDCHK_ASSERT(sizes.mean <= sizes.max);
  // After the minimum length, on average one position in `spread` is a boundary.
  const std::uint64_t spread = sizes.mean - sizes.min;
  below_ = std::numeric_limits<std::uint64_t>::max() / spread * kFiltered;
}

std::size_t BoundaryFinder::find(const std::byte* bytes, std::size_t from, std::size_t to) const {
  STDCHK_ASSERT(from >= kWindow);
  switch (engine_) {
    case BoundaryEngine::kAvx512:
      return find_wide(boundary::search_avx512, boundary::kStepAvx512, bytes, from, to, below_);
    case BoundaryEngine::kAvx2:
      return find_wide(boundary::search_avx2, boundary::kStepAvx2, bytes, from, to, below_);
    default:
      return find_scalar(bytes, from, to, below_);
  }
}

std::vector<std::uint32_t> find_boundaries(const BoundaryFinder& finder, ByteSpan bytes) {
  std::vector<std::uint32_t> found;
  // A boundary at the very end counts: the chunk may end there.
  const std::size_t to = bytes.size() + 1;
  for (std::size_t at = BoundaryFinder::kWindow; at < to; ++at) {
    at = finder.find(bytes.data(), at, to);
    if (at < to) found.push_back(static_cast<std::uint32_t>(at));
  }
  return found;
}

Chunker::Chunker(ChunkSizes sizes, BoundaryEngine engine) : sizes_(sizes), finder_(sizes, engine) {}

void Chunker::push(ByteSpan bytes, std::vector<std::uint64_t>& ends) {
  cut(
      bytes, [&](std::size_t from, std::size_t to) { return finder_.find(bytes.data(), from, to); },
      ends);
}

void Chunker::push(ByteSpan bytes, std::span<const std::uint32_t> inside,
                   std::vector<std::uint64_t>& ends) {
  cut(
      bytes,
      [&](std::size_t from, std::size_t to) {
        const auto next = std::lower_bound(inside.begin(), inside.end(), from);
        return next == inside.end() ? to : std::min<std::size_t>(*next, to);
      },
      ends);
}

/// `find_inside(from, to)` returns the first boundary of `bytes` in [from, to), or `to`.
template <class FindInside>
void Chunker::cut(ByteSpan bytes, FindInside find_inside, std::vector<std::uint64_t>& ends) {
  if (bytes.empty()) return;
  const std::size_t window = BoundaryFinder::kWindow;
  std::memcpy(seam_.data() + kHistory, bytes.data(), std::min(bytes.size(), kHistory));
  for (;;) {
    // The possible ends of the chunk, relative to the start of `bytes`: [earliest, latest].
    const std::uint64_t earliest = std::max(start_ + sizes_.min, position_ + 1) - position_;
    const std::uint64_t forced = start_ + sizes_.max - position_;
    const std::uint64_t latest = std::min<std::uint64_t>(forced, bytes.size());
    if (earliest > latest) break;
    auto at = static_cast<std::size_t>(earliest);
    const auto to = static_cast<std::size_t>(latest) + 1;
    if (at < window) at = find_at_seam(at, std::min(to, window));
    if (at >= window && at < to) at = find_inside(at, to);
    if (at == to) {
      if (forced > bytes.size()) break;
      at = static_cast<std::size_t>(forced);
    }
    start_ = position_ + at;
    ends.push_back(start_);
  }
  remember(bytes);
  position_ += bytes.size();
}

/// Returns the first boundary in [from, to), or `to`, where windows begin in
/// bytes of earlier pushes.
std::size_t Chunker::find_at_seam(std::size_t from, std::size_t to) const {
  // Position p of the new bytes is kHistory + p of the seam; its window begins at p - 1 >= 0.
  return finder_.find(seam_.data(), kHistory + from, kHistory + to) - kHistory;
}

void Chunker::remember(ByteSpan bytes) {
  if (bytes.size() >= kHistory) {
    std::memcpy(seam_.data(), bytes.data() + bytes.size() - kHistory, kHistory);
    return;
  }
  std::memmove(seam_.data(), seam_.data() + bytes.size(), kHistory);
}

}  // namespace stdchk
