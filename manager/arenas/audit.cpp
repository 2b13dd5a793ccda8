#include "manager/arenas/audit.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "manager/pool/pool.h"

namespace stdchk::manager {
namespace {

constexpr std::size_t kToldMax = 100;
constexpr std::size_t kSentenceBytesMax = 400;

/// References to a chunk, counted by a walk over all versions.
struct Counted {
  std::uint32_t references = 0;
  std::uint32_t undrained = 0;
};

void count(const VersionData& version, std::map<ChunkIndex, Counted>& counted) {
  for (const PackedSlice& slice : version.slices) {
    Counted& chunk = counted[slice.chunk];
    ++chunk.references;
    if (!version.drained) ++chunk.undrained;
  }
}

const char* name_of(ClaimKind kind) {
  switch (kind) {
    case ClaimKind::kFree:
      return "free";
    case ClaimKind::kGranted:
      return "granted";
    case ClaimKind::kQuarantined:
      return "quarantined";
    case ClaimKind::kUsed:
      return "used";
    case ClaimKind::kReserved:
      return "reserved for a copy";
    case ClaimKind::kFreeing:
      return "freed";
  }
  return "?";
}

/// Describes the first fault of a version, judged without other files; empty for a sound version.
std::string first_fault_of(const State& state, const VersionData& version) {
  if (!well_formed(version.slices)) return "its slices overlap or do not ascend";
  std::uint64_t stored = 0;
  for (const PackedSlice& slice : version.slices) {
    if (!state.chunks().exists(slice.chunk)) return "a slice names no chunk";
    const std::uint64_t end = std::uint64_t{slice.chunk_offset} + slice.length;
    if (end > state.chunks().length(slice.chunk)) return "a slice goes beyond its chunk";
    stored += slice.length;
  }
  if (stored != version.stored_bytes) return "its stored bytes are miscounted";
  const bool beyond = !version.slices.empty() && version.slices.back().end() > version.size_bytes;
  return beyond ? "a slice goes beyond its end" : "";
}

/// Checks that each slice of an undrained file has its bytes in memory. A drained file changed in
/// part is exempt: its remaining bytes are in the drain directory.
std::string wrong_places(const State& state, const File& file) {
  const auto in_memory = [&](const PackedSlice& slice) {
    return !state.chunks().exists(slice.chunk) || state.chunks().has_copies(slice.chunk);
  };
  if (!file.parent || file.newest.drained || file.in_drain) return {};
  const bool whole = std::ranges::all_of(file.newest.slices, in_memory);
  return whole ? "" : "one of its chunks is neither in memory nor in the drain directory";
}

/// Says what is wrong with a file's place in the tree; empty when nothing is.
std::string wrong_place(const State& state, const File& file) {
  if (file.id == kRootFile) return {};
  if (file.parent) {
    const File* const parent = state.file(file.parent);
    if (parent == nullptr || parent->type != FileType::kDirectory) return "its directory is gone";
    const auto child = parent->as_directory.children.find(file.name);
    if (child == parent->as_directory.children.end() || child->second != file.id) {
      return "its directory does not have it";
    }
    for (const Link& link : file.links) {
      const File* const other = state.file(link.parent);
      if (other == nullptr || other->type != FileType::kDirectory) {
        return "the directory of a further name is gone";
      }
      const auto entry = other->as_directory.children.find(link.name);
      if (entry == other->as_directory.children.end() || entry->second != file.id) {
        return "its directory lacks a further name";
      }
    }
  } else if (!file.links.empty()) {
    return "it has further names, but lacks a first name";
  } else if (!file.pending && file.keeps == 0) {
    return "it has no name, and no session has it open";
  }
  return {};
}

std::string wrong_children(const State& state, const File& directory) {
  std::uint32_t subdirectories = 0;
  for (const auto& [name, id] : directory.as_directory.children) {
    const File* const child = state.file(id);
    if (child == nullptr) return fmt::format("its entry {} is no file", name);
    const auto is_this = [&directory, &name = name](const Link& link) {
      return link.parent == directory.id && link.name == name;
    };
    const bool is_first = child->parent == directory.id && child->name == name;
    if (!is_first && std::ranges::none_of(child->links, is_this)) {
      return fmt::format("its entry {} is another file's", name);
    }
    subdirectories += child->type == FileType::kDirectory ? 1 : 0;
  }
  for (const auto& [name, id] : directory.as_directory.pending_children) {
    const File* const child = state.file(id);
    if (child == nullptr || !child->pending || child->pending->parent != directory.id) {
      return fmt::format("its new entry {} is no file", name);
    }
  }
  return subdirectories == directory.as_directory.subdirectories ? ""
                                                                 : "its directories are miscounted";
}

/// Checks that the lists of undrained and of evictable files have the file if they should.
std::string wrong_lists(const State& state, const File& file) {
  const std::pair key{file.newest.sequence, file.id};
  const bool listed = file.parent && file.type == FileType::kRegular && file.newest.version > 0;
  const bool undrained = listed && !file.newest.drained;
  const bool evictable = listed && file.newest.drained && !file.newest.evicted;
  if ((state.commits().undrained().count(key) > 0) != undrained)
    return "the drain's list is wrong about it";
  if ((state.commits().evictable().count(key) > 0) != evictable) {
    return "the list of evictable files is wrong about it";
  }
  return {};
}

}  // namespace

Audit::Audit(const Pool& pool, const SessionTable& sessions, const Claims& claims)
    : pool_(pool), sessions_(sessions), claims_(claims) {
  check_files();
  check_chunks();
  check_space();
}

void Audit::check_files() {
  const State& state = pool_.state();
  std::uint64_t logical = 0;
  std::uint64_t single = 0;
  std::uint64_t redundant = 0;
  state.files().for_each([&](const File& file) {
    ++files_;
    std::vector<std::string> wrong{wrong_place(state, file), wrong_lists(state, file),
                                   first_fault_of(state, file.newest), wrong_places(state, file)};
    if (file.type == FileType::kDirectory) wrong.push_back(wrong_children(state, file));
    for (const auto& [number, older] : file.older) {
      wrong.push_back(first_fault_of(state, older));
      if (older.pins == 0) wrong.emplace_back("an older version is kept for nobody");
      if (older.version != number) wrong.emplace_back("an older version has another's number");
    }
    if (file.parent && file.type == FileType::kRegular && file.newest.version > 0) {
      if (file.newest.opened >= file.newest.sequence) {
        wrong.emplace_back("its session was opened after its commit");
      }
      logical += file.newest.size_bytes;
      const bool counts = !file.newest.drained && file.newest.stored_bytes > 0;
      if (counts) ++(file.newest.copies == 1 ? single : redundant);
    }
    for (const std::string& what : wrong) {
      if (what.empty()) continue;
      broken_.push_back(fmt::format("file {} ({}): {}", file.id.value, state.path(file), what));
    }
  });
  if (logical != state.commits().logical_bytes()) {
    broken_.push_back(fmt::format("the files have {} bytes, {} are counted", logical,
                                  state.commits().logical_bytes()));
  }
  if (single != state.commits().undrained_single() ||
      redundant != state.commits().undrained_redundant()) {
    broken_.push_back(fmt::format(
        "{} files with one copy and {} with more are not drained, {} and {} are counted", single,
        redundant, state.commits().undrained_single(), state.commits().undrained_redundant()));
  }
}

void Audit::check_chunks() {
  const State& state = pool_.state();
  const ChunkTable& chunks = state.chunks();
  std::map<ChunkIndex, Counted> counted;
  state.files().for_each([&](const File& file) {
    count(file.newest, counted);
    for (const auto& [number, older] : file.older) count(older, counted);
  });
  for (const auto& [chunk, holds] : pool_.held()) counted[chunk].references += holds;
  state.stripes().for_each([&](const Stripe& stripe) {
    for (const ChunkIndex member : stripe.members) ++counted[member].references;
    check_stripe(stripe);
  });
  sessions_.for_each_hold([&](ChunkIndex chunk) { ++counted[chunk].references; });
  std::uint64_t stored = 0;
  chunks.for_each([&](ChunkIndex index) {
    const Chunk chunk = chunks.get(index);
    const auto found = counted.find(index);
    const Counted now = found == counted.end() ? Counted{} : found->second;
    references_ += now.references;
    stored += chunk.copies.size() * extent_bytes(chunk.length);
    const auto report = [&](const std::string& what) {
      broken_.push_back(fmt::format("chunk {}: {}", index, what));
    };
    if (now.references != chunks.references(index)) {
      report(fmt::format("it has {} references, {} are counted", now.references,
                         chunks.references(index)));
    }
    if (now.undrained != chunks.undrained(index)) {
      report(fmt::format("it has {} references by what is not drained, {} are counted",
                         now.undrained, chunks.undrained(index)));
    }
    if (chunk.name.is_named() &&
        chunks.find(chunk.name, chunk.length, chunks.home(index)) != index) {
      report("its name does not lead to it");
    }
    const bool by_place = !chunk.name.is_named() && chunks.redundancy(index).has_parity();
    for (const Extent& copy : chunk.copies) {
      if (by_place && chunks.find_place(copy) != index) report("its place does not lead to it");
      if (state.benefactors().count(copy.benefactor) > 0) continue;
      report(fmt::format("a copy is on benefactor {}, which is not known", copy.benefactor.value));
    }
    for (std::size_t i = 1; i < chunk.copies.size(); ++i) {
      const auto same = [&](const Extent& copy) {
        return copy.benefactor == chunk.copies[i].benefactor;
      };
      const auto end = chunk.copies.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::any_of(chunk.copies.begin(), end, same)) {
        report(fmt::format("two copies are on benefactor {}", chunk.copies[i].benefactor.value));
      }
    }
  });
  if (stored != chunks.stored_bytes()) {
    broken_.push_back(
        fmt::format("the chunks take {} bytes, {} are counted", stored, chunks.stored_bytes()));
  }
}

void Audit::check_stripe(const Stripe& stripe) {
  const State& state = pool_.state();
  const auto report = [&](const std::string& what) {
    broken_.push_back(fmt::format("the stripe of chunk {}: {}", stripe.members.front(), what));
  };
  if (stripe.data == 0 || stripe.data >= stripe.members.size()) {
    return report("it has no data, or no parity");
  }
  bool used = false;
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < stripe.members.size(); ++i) {
    const ChunkIndex member = stripe.members[i];
    if (!state.chunks().exists(member)) return report("a block is no chunk");
    if (!state.chunks().has_copies(member)) report("a block was given up");
    if (state.stripes().of(member) != &stripe) report("a block is in another one, too");
    const std::uint32_t length = state.chunks().length(member);
    if (i < stripe.data) {
      used |= state.contents().is_used(member);
      longest = std::max(longest, length);
    } else if (length != longest) {
      report("parity is not as long as the longest chunk");
    }
  }
  if (!used) report("nothing uses it");
}

/// Checks that the claims on each arena, sorted by offset, touch without gaps and overlaps.
void Audit::check_space() {
  std::map<BenefactorId, std::vector<Claim>> arenas;
  for (const auto& [id, status] : pool_.benefactors()) arenas[id];
  for (Claim& claim : claims_.all()) {
    bytes_[static_cast<std::size_t>(claim.kind)] += claim.range.length;
    arenas[claim.benefactor].push_back(claim);
  }
  for (auto& [id, claims] : arenas) {
    std::sort(claims.begin(), claims.end(),
              [](const Claim& a, const Claim& b) { return a.range < b.range; });
    const std::uint64_t arena =
        pool_.space().arena_bytes(id) / limits::kExtentAlignment * limits::kExtentAlignment;
    std::uint64_t at = 0;
    ClaimKind before = ClaimKind::kFree;  // the kind of the claim that ends at `at`
    for (const Claim& claim : claims) {
      if (claim.range.offset > at) leaked_.push_back({id, at, claim.range.offset - at});
      if (claim.range.offset < at) {
        broken_.push_back(fmt::format("benefactor {}: {} bytes at {} are claimed twice: {} and {}",
                                      id.value,
                                      std::min(at, claim.range.end()) - claim.range.offset,
                                      claim.range.offset, name_of(before), name_of(claim.kind)));
      }
      if (claim.range.end() <= at) continue;
      at = claim.range.end();
      before = claim.kind;
    }
    if (at > arena) {
      broken_.push_back(fmt::format("benefactor {}: something is beyond its end", id.value));
    }
    if (at < arena) leaked_.push_back({id, at, arena - at});
  }
}

msg::CheckMetadata::Reply Audit::reply() const {
  msg::CheckMetadata::Reply out;
  for (const std::string& sentence : broken_) {
    if (out.broken.size() == kToldMax) break;
    out.broken.push_back(sentence.substr(0, kSentenceBytesMax));
  }
  out.broken_count = broken_.size();
  for (const auto& leak : leaked_) {
    ++out.broken_count;
    if (out.broken.size() == kToldMax) continue;
    out.broken.push_back(fmt::format("benefactor {}: {} bytes at {} are leaked; see stdchk gc",
                                     leak.benefactor.value, leak.length, leak.offset));
  }
  out.files = files_ - 1;
  out.chunks = pool_.state().chunks().chunk_count();
  out.references = references_;
  return out;
}

msg::CollectGarbage::Reply Audit::garbage() const {
  msg::CollectGarbage::Reply out;
  for (const auto& leak : leaked_) {
    out.leaked_bytes += leak.length;
    if (out.leaked.size() < kToldMax) out.leaked.push_back(leak);
  }
  out.waiting_bytes = bytes_of(ClaimKind::kQuarantined) + bytes_of(ClaimKind::kFreeing);
  out.granted_bytes = bytes_of(ClaimKind::kGranted) + bytes_of(ClaimKind::kReserved);
  out.used_bytes = bytes_of(ClaimKind::kUsed);
  out.free_bytes = bytes_of(ClaimKind::kFree);
  return out;
}

}  // namespace stdchk::manager
