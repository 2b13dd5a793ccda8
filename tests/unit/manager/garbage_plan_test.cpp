#include "manager/arenas/garbage_plan.h"

#include "core/base/limits.h"
#include "core/chunk/extent_header.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;

constexpr std::uint64_t kArena = 64 * limits::kKiB;
constexpr std::uint32_t kLength = 1000;
constexpr std::uint64_t kExtent = 1088;  // header and content, rounded up to whole steps
static_assert(kExtent == extent_bytes(kLength));

Claim claim(std::uint64_t offset, std::uint64_t length, ClaimKind kind) {
  return {BenefactorId{1}, {offset, length}, kind};
}
msg::FoundExtent header(std::uint64_t offset, std::uint32_t length = kLength) {
  return {offset, length, 7};
}
std::vector<std::uint64_t> offsets(const std::vector<msg::FoundExtent>& extents) {
  std::vector<std::uint64_t> out;
  out.reserve(extents.size());
  for (const auto& each : extents) out.push_back(each.offset);
  return out;
}
std::uint64_t kept(const GarbagePlan& plan, ClaimKind kind) {
  return plan.kept[static_cast<std::size_t>(kind)];
}
ArenaPage whole(std::vector<msg::FoundExtent> found) {
  return {{0, kArena}, std::move(found), kArena};
}

}  // namespace

TEST_CASE("a header in free space may go, and one in anything else stays") {
  const ClaimKind kind = GENERATE(ClaimKind::kFree, ClaimKind::kGranted, ClaimKind::kQuarantined,
                                  ClaimKind::kUsed, ClaimKind::kReserved, ClaimKind::kFreeing);
  // Headers lie in the first step, in the middle and in the last step of the range.
  const auto plan =
      plan_garbage(whole({header(kExtent), header(4 * kExtent), header(8 * kExtent - 64, 0)}),
                   {claim(0, kExtent, ClaimKind::kQuarantined), claim(kExtent, 7 * kExtent, kind),
                    claim(8 * kExtent, kArena - 8 * kExtent, ClaimKind::kQuarantined)},
                   {});
  if (kind == ClaimKind::kFree) {
    CHECK(offsets(plan.garbage) ==
          std::vector<std::uint64_t>{kExtent, 4 * kExtent, 8 * kExtent - 64});
    CHECK(plan.garbage_bytes == 2 * kExtent + 64);
  } else {
    CHECK(plan.garbage.empty());
    CHECK(kept(plan, kind) == 3);
  }
}

TEST_CASE("what nothing claims stays, whether chunks' claims are there or not") {
  const std::vector<msg::FoundExtent> found{header(0), header(kExtent), header(2 * kExtent)};
  const Claim free = claim(2 * kExtent, kArena - 2 * kExtent, ClaimKind::kFree);
  const auto without = plan_garbage(whole(found), {free}, {});
  const auto with = plan_garbage(
      whole(found),
      {claim(0, kExtent, ClaimKind::kUsed), claim(kExtent, kExtent, ClaimKind::kUsed), free}, {});
  for (const GarbagePlan& plan : {without, with}) {
    CHECK(offsets(plan.garbage) == std::vector<std::uint64_t>{2 * kExtent});
    CHECK(kept(plan, ClaimKind::kUsed) == 2);
    CHECK(plan.missing.empty());
  }
  CHECK(plan_garbage(whole(found), {}, {}).garbage.empty());
}

TEST_CASE("of an old extent counts what is free and no later one's") {
  // The first extent reaches into used space; the second header lies within an extent.
  const auto plan = plan_garbage(whole({header(0), header(512), header(3 * kExtent)}),
                                 {claim(0, 3 * kExtent, ClaimKind::kFree),
                                  claim(4 * kExtent, kArena - 4 * kExtent, ClaimKind::kGranted)},
                                 {});
  CHECK(plan.garbage_bytes == 512 + kExtent);
  const auto cut = plan_garbage(
      whole({header(640)}),
      {claim(0, 1024, ClaimKind::kFree), claim(1024, kArena - 1024, ClaimKind::kGranted)}, {});
  CHECK(cut.garbage_bytes == 1024 - 640);
}

TEST_CASE("what looks like a header in a chunk's content stays, and hides nothing") {
  const Claim rest = claim(3 * kExtent, kArena - 3 * kExtent, ClaimKind::kFree);
  const auto plan = plan_garbage(whole({header(0), header(128, 5), header(kExtent),
                                        header(kExtent + 512, 9 * kLength), header(2 * kExtent)}),
                                 {rest}, {});
  CHECK(plan.garbage.empty());
  CHECK(plan.missing.empty());
  CHECK(kept(plan, ClaimKind::kUsed) == 5);
}

TEST_CASE("a chunk without its header is missing, and those behind it are not") {
  const Claim rest = claim(4 * kExtent, kArena - 4 * kExtent, ClaimKind::kFree);
  const auto plan =
      plan_garbage(whole({header(0), header(2 * kExtent), header(3 * kExtent)}), {rest}, {});
  CHECK(plan.missing == std::vector<Range>{{kExtent, kExtent}});
  CHECK(plan_garbage(whole({}), {rest}, {}).missing == std::vector<Range>{{0, 4 * kExtent}});
  // The last header's extent is longer than the space of its chunk.
  const auto longer = plan_garbage(
      whole({header(0), header(kExtent), header(2 * kExtent), header(3 * kExtent, 2 * kLength)}),
      {rest}, {});
  CHECK(longer.missing == std::vector<Range>{{3 * kExtent, kExtent}});
}

TEST_CASE("used space that goes on behind a page is followed from where the page before says") {
  const std::uint64_t end = 2 * kExtent + 64;  // inside the third extent
  const Claim rest = claim(6 * kExtent, kArena - 6 * kExtent, ClaimKind::kFree);
  const ArenaPage first{{0, end}, {header(0), header(kExtent), header(2 * kExtent)}, kArena};
  const auto before = plan_garbage(first, {rest}, {});
  CHECK(before.missing.empty());
  REQUIRE(before.next_extent == 3 * kExtent);
  // The fourth extent has its header, the fifth lacks it.
  const ArenaPage second{{end, kArena - end}, {header(3 * kExtent), header(5 * kExtent)}, kArena};
  CHECK(plan_garbage(second, {rest}, before.next_extent).missing ==
        std::vector<Range>{{4 * kExtent, kExtent}});
  CHECK(plan_garbage(second, {rest}, {}).missing.empty());
  // After free space, the extents' positions are known again.
  const Claim hole = claim(3 * kExtent, kExtent, ClaimKind::kFree);
  CHECK(plan_garbage(second, {hole, rest}, {}).missing ==
        std::vector<Range>{{4 * kExtent, kExtent}});
}

TEST_CASE("claims that reach beyond a page, and begin where it ends, are those of the next one") {
  const Claim free = claim(kExtent, 3 * kExtent, ClaimKind::kFree);
  const ArenaPage first{{0, 2 * kExtent}, {header(0), header(kExtent)}, kArena};
  const auto before = plan_garbage(first, {free}, {});
  CHECK(offsets(before.garbage) == std::vector<std::uint64_t>{kExtent});
  const ArenaPage second{
      {2 * kExtent, 2 * kExtent}, {header(2 * kExtent), header(3 * kExtent)}, kArena};
  const auto middle = plan_garbage(second, {free}, before.next_extent);
  CHECK(middle.garbage.size() == 2);
  // The next page begins with used space.
  const ArenaPage third{{4 * kExtent, kArena - 4 * kExtent}, {header(5 * kExtent)}, kArena};
  const auto last = plan_garbage(third, {free}, middle.next_extent);
  CHECK(last.garbage.empty());
  REQUIRE(!last.missing.empty());
  CHECK(last.missing.front() == Range{4 * kExtent, kExtent});
}
