// Feeds an arena with arbitrary bytes, and requests with arbitrary numbers, to a benefactor's code:
// report, forget, check and move extents. Feeds arbitrary reports to the manager's garbage planner.
// Feeds arbitrary requests to a benefactor's metadata log.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "benefactor/memory/check_extents.h"
#include "benefactor/memory/extent_report.h"
#include "benefactor/memory/metadata_log.h"
#include "benefactor/memory/move_extents.h"
#include "core/base/assert.h"
#include "core/chunk/extent_header.h"
#include "core/chunk/naming.h"
#include "manager/arenas/garbage_plan.h"
#include "tests/fuzz/choices.h"

using namespace stdchk;

namespace {

constexpr std::uint64_t kStep = limits::kExtentAlignment;
constexpr std::uint64_t kArenaBytes = 32 * kStep;

/// Mostly a place within the arena; now and then an arbitrary number.
std::uint64_t place(fuzz::Choices& choices) {
  const unsigned value = choices.byte();
  return value == 255 ? choices.number() : value == 254 ? value : value % 40 * kStep;
}
std::uint32_t length(fuzz::Choices& choices) {
  const unsigned value = choices.byte();
  return value == 255 ? static_cast<std::uint32_t>(choices.number()) : value;
}

/// Writes a valid header, with its content or without, or bytes of the input.
void write_something(fuzz::Choices& choices, MutableByteSpan arena) {
  const std::uint64_t at = choices.below(32) * kStep;
  const MutableByteSpan to = arena.subspan(at);
  const unsigned kind = choices.below(3);
  if (kind == 0) {
    const ByteSpan bytes = choices.bytes(choices.byte());
    std::memcpy(to.data(), bytes.data(), std::min(bytes.size(), to.size()));
    return;
  }
  ExtentHeader header;
  header.length = length(choices);
  header.file.value = choices.byte();
  if (kind == 1 && header.length <= to.size() - limits::kExtentHeaderBytes) {
    const ByteSpan content = to.subspan(limits::kExtentHeaderBytes, header.length);
    header.crc = crc32c(0, content);
    if (choices.flag()) header.name = name_chunk(content);
  }
  encode_extent_header(header, to.data());
}

/// Reports the whole arena page by page. Each page lists its extents in order, and the next page
/// follows.
msg::ReportExtents::Reply check_report(ByteSpan arena) {
  msg::ReportExtents::Reply all;
  for (std::uint64_t at = 0; at < arena.size();) {
    const auto page = benefactor::report_extents(arena, {at, arena.size()});
    STDCHK_ASSERT(manager::is_possible(page, at, arena.size()));
    all.extents.insert(all.extents.end(), page.extents.begin(), page.extents.end());
    all.end = at = page.end;
  }
  for (std::uint64_t at = 0; at < arena.size(); at += kStep) {
    const bool found = std::ranges::any_of(
        all.extents, [&](const msg::FoundExtent& each) { return each.offset == at; });
    const auto header = decode_extent_header(arena.subspan(at, limits::kExtentHeaderBytes));
    STDCHK_ASSERT(found == header.has_value());
  }
  return all;
}

void check_forget(fuzz::Choices& choices, MutableByteSpan arena) {
  const auto before = check_report(arena).extents;
  msg::ForgetExtents request;
  for (unsigned i = choices.below(6); i > 0; --i) {
    if (choices.flag() && !before.empty()) {
      request.extents.push_back(before[choices.byte() % before.size()]);
    } else {
      request.extents.push_back({place(choices), length(choices), choices.byte()});
    }
  }
  benefactor::Forgetter forgetter(arena);
  const auto reply = forgetter.forget(request, forgetter.link());
  STDCHK_ASSERT(reply.has_value());
  std::set<std::uint64_t> wanted;
  for (const auto& each : before) {
    if (std::ranges::find(request.extents, each) != request.extents.end()) {
      wanted.insert(each.offset);
    }
  }
  STDCHK_ASSERT(reply->forgotten == wanted.size());
  STDCHK_ASSERT(check_report(arena).extents.size() + reply->forgotten == before.size());
}

void check_moves(fuzz::Choices& choices, MutableByteSpan arena) {
  msg::MoveExtents request;
  for (unsigned i = choices.below(4); i > 0; --i) {
    request.moves.push_back({place(choices), place(choices), length(choices), choices.byte()});
    const auto& from = request.moves.back();
    if (from.from_offset < arena.size() && from.from_offset % kStep == 0) {
      const auto header =
          decode_extent_header(arena.subspan(from.from_offset, limits::kExtentHeaderBytes));
      if (header) request.moves.back().length = header->length;
      if (header) request.moves.back().crc = header->crc;
    }
  }
  const auto reply = benefactor::move_extents(arena, request);
  STDCHK_ASSERT(reply.failed.size() <= request.moves.size());
}

void check_checks(fuzz::Choices& choices, ByteSpan arena) {
  msg::CheckExtents request;
  for (unsigned i = choices.below(4); i > 0; --i) {
    request.extents.push_back({place(choices), length(choices), choices.byte(), {}});
    request.extents.back().name.bytes[0] = static_cast<std::byte>(choices.below(2));
  }
  const auto reply = benefactor::check_extents(arena, request);
  STDCHK_ASSERT(reply.corrupt.size() <= request.extents.size());
}

/// Makes the report of a lying benefactor. Plans are checked only for reports that pass
/// is_possible().
void check_plan(fuzz::Choices& choices) {
  msg::ReportExtents::Reply reply;
  for (unsigned i = choices.below(12); i > 0; --i) {
    reply.extents.push_back({place(choices), length(choices), choices.byte()});
  }
  reply.end = place(choices);
  const std::uint64_t begin = choices.below(32) * kStep;
  if (choices.flag()) std::ranges::sort(reply.extents, {}, &msg::FoundExtent::offset);
  if (!manager::is_possible(reply, begin, kArenaBytes)) return;
  std::vector<manager::Claim> claims;
  for (std::uint64_t at = 0; at < kArenaBytes;) {
    at += choices.below(8) * kStep;
    const std::uint64_t bytes = (1 + choices.below(8)) * kStep;
    if (at + bytes > kArenaBytes) break;
    claims.push_back({BenefactorId{1},
                      {at, bytes},
                      static_cast<manager::ClaimKind>(choices.below(manager::kClaimKinds))});
    at += bytes;
  }
  std::optional<std::uint64_t> next;
  if (choices.flag()) next = place(choices);
  const manager::ArenaPage page{{begin, reply.end - begin}, reply.extents, kArenaBytes};
  const auto plan = manager::plan_garbage(page, claims, next);
  std::uint64_t sum = plan.garbage.size();
  for (const std::uint64_t each : plan.kept) sum += each;
  STDCHK_ASSERT(sum == page.found.size());
  for (const msg::FoundExtent& each : plan.garbage) {
    STDCHK_ASSERT(std::ranges::find(page.found, each) != page.found.end());
    STDCHK_ASSERT(std::ranges::any_of(claims, [&](const manager::Claim& claim) {
      return claim.kind == manager::ClaimKind::kFree && each.offset >= claim.range.offset &&
             each.offset + limits::kExtentHeaderBytes <= claim.range.end();
    }));
  }
  for (const manager::Range& range : plan.missing) {
    STDCHK_ASSERT(range.length > 0 && range.offset >= begin && range.end() <= reply.end);
  }
}

/// Compares the metadata log with a simple model of it.
void check_log(fuzz::Choices& choices) {
  constexpr std::uint64_t kLogBytes = 64;
  benefactor::MetadataLog log(kLogBytes);
  std::string whole;    // content that counts
  std::string written;  // content of the log being written
  std::uint64_t sequence = 0;
  while (!choices.empty()) {
    if (choices.below(8) == 0) {
      log.promise({choices.below(8)});
      continue;
    }
    msg::KeepLog request;
    request.epoch = {choices.below(8)};
    request.begins = choices.flag();
    request.offset = choices.flag() ? choices.below(40) : request.begins ? 0 : written.size();
    request.sequence = choices.below(4);
    request.bytes = fuzz::text_of(choices.bytes(choices.below(40)));
    const bool kept = log.store(request).has_value();
    if (kept) {
      if (request.begins) written.clear();
      written += request.bytes;
      if (request.sequence > 0) whole = written;
      if (request.sequence > 0) sequence = request.sequence;
      STDCHK_ASSERT(written.size() <= kLogBytes / 2);
    } else if (request.begins && !written.empty()) {
      return;  // whether the old or the new log continues depends on the error
    }
    STDCHK_ASSERT(log.sequence() == sequence);
    const auto read = log.read(0);
    STDCHK_ASSERT(read.has_value() == (sequence > 0));
    STDCHK_ASSERT(!read || read->bytes == whole);
    const std::uint64_t offset = choices.below(60);
    const auto rest = log.read(offset);
    STDCHK_ASSERT(rest.has_value() == (sequence > 0 && offset <= whole.size()));
    STDCHK_ASSERT(!rest || rest->bytes == whole.substr(offset));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const unsigned what = choices.below(8);
  if (what == 0) {
    check_log(choices);
    return 0;
  }
  if (what == 1) {
    check_plan(choices);
    return 0;
  }
  // On the heap without spare bytes, so that sanitizers see reads past the end.
  std::vector<std::byte> memory(kArenaBytes);
  for (unsigned i = choices.below(16); i > 0; --i) write_something(choices, memory);
  (void)benefactor::report_extents(memory, {choices.number(), choices.number()});
  (void)check_report(memory);
  check_checks(choices, memory);
  if (what == 2) check_moves(choices, memory);
  check_forget(choices, memory);
  return 0;
}
