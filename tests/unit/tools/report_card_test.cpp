#include "tools/ask/report_card.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "core/policy/redundancy.h"
#include "tests/support/catch.h"

using namespace stdchk;
using namespace stdchk::tools;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kSecond = 1'000'000'000;

/// The figures of a job without problems.
ReportFigures good() {
  ReportFigures figures;
  figures.mount = "/mnt/pool";
  figures.since = "2008-06-17 10:00:00";
  figures.config.drain_directory = "/pfs/job";
  figures.pool.total_bytes = 4096 * kMiB;
  msg::PoolTotals& totals = figures.pool.totals;
  totals.images = 8;
  totals.written_bytes = 800 * kMiB;
  totals.stored_bytes = 600 * kMiB;
  totals.drained_images = 8;
  totals.drained_bytes = 800 * kMiB;
  totals.sets = 7;
  totals.sets_overtaken = 1;
  totals.at_risk_ns = 59 * kSecond;
  totals.space_waits = 3;
  totals.space_wait_ns = kSecond / 2;
  totals.fullest_permille = 912;
  totals.writers.closed_bytes = 800 * kMiB;
  totals.writers.open_to_close_ns = 4 * kSecond;
  totals.writers.committed_bytes = 800 * kMiB;
  totals.writers.open_to_commit_ns = 8 * kSecond;
  totals.writers.longest_call_ns = 2 * kSecond;
  totals.writers.named_bytes = 800 * kMiB;
  totals.writers.equal_bytes = 200 * kMiB;
  totals.writers.naming_ns = 5 * kSecond;
  totals.readers = {300 * kMiB, 20 * kMiB, kMiB};
  return figures;
}

/// The only advice that these figures give.
std::string only_advice(const ReportFigures& figures) {
  const auto advice = recommendations(figures);
  REQUIRE(advice.size() == 1);
  return advice.front();
}

void has(const std::string& text, const std::string& part) {
  INFO(text);
  CHECK(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("good figures ask for no change") { CHECK(recommendations(good()).empty()); }

TEST_CASE("advice: chunks that are lost ask for copies") {
  auto figures = good();
  figures.pool.lost_chunks = 3;
  has(only_advice(figures), "3 chunks went with a lost benefactor");
  has(only_advice(figures), "--copies 2");
}

TEST_CASE("advice: what cannot be drained is in the manager's log") {
  auto figures = good();
  figures.pool.drain_failed_files = 1;
  has(only_advice(figures), "1 file could not be drained so far");
}

TEST_CASE("advice: what is not drained is told at the end, and not before") {
  auto figures = good();
  figures.pool.drain_pending_files = 2;
  figures.pool.drain_pending_bytes = 3 * kMiB;
  CHECK(recommendations(figures).empty());
  figures.ends = true;
  has(only_advice(figures), "2 files (3.0 MiB) did not get to the drain directory");
  has(only_advice(figures), "down --drain");
}

TEST_CASE("advice: a drain that is overtaken should be faster, or do less") {
  auto figures = good();
  figures.pool.totals.sets_overtaken = 3;
  has(only_advice(figures), "3 of 7 times");
  has(only_advice(figures), "--drain-yields off");
  has(only_advice(figures), "drain-every=2");
  figures.config.drain_rate_bytes_per_s = kMiB;
  has(only_advice(figures), "raise --drain-rate");
  figures.pool.totals.sets = 13;  // 3 of 13 are fewer than a quarter
  CHECK(recommendations(figures).empty());
}

TEST_CASE("advice: a full pool needs memory") {
  auto figures = good();
  figures.pool.totals.space_wait_ns = 90 * kSecond;
  has(only_advice(figures), "The pool was 91 % full, and 3 writers waited 90.0 s for room");
  has(only_advice(figures), "or drain faster");
  figures.config.drain_directory.clear();
  CHECK(only_advice(figures).find("drain") == std::string::npos);
}

TEST_CASE("advice: images at risk need copies, or copies sooner") {
  auto figures = good();
  figures.pool.totals.at_risk_ns = 300 * kSecond;
  has(only_advice(figures), "For 5.0 min images were only in the pool and with one copy");
  CHECK(only_advice(figures).find("--drain") == std::string::npos);
  figures.config.drain_directory.clear();
  has(only_advice(figures), "--drain");
  figures.config.copies = Redundancy{2, 0, 0}.number();
  has(only_advice(figures), "fewer copies than they should have");
  has(only_advice(figures), "--close redundant");
}

TEST_CASE("advice: names that find nothing are not worth their time") {
  auto figures = good();
  figures.pool.totals.writers.equal_bytes = 30 * kMiB;
  has(only_advice(figures), "Only 30.0 MiB of 800.0 MiB was equal to stored chunks");
  figures.pool.totals.writers.equal_bytes = 0;
  has(only_advice(figures), "Nothing of 800.0 MiB was equal to stored chunks");
  has(only_advice(figures), "--naming off saves 5.0 s");
  figures.pool.totals.writers.naming_ns = kSecond / 2;
  CHECK(recommendations(figures).empty());
}

TEST_CASE("advice: a call that took long in a pool with room asks for a look at the network") {
  auto figures = good();
  figures.pool.totals.writers.longest_call_ns = 20 * kSecond;
  has(only_advice(figures), "One write or close took 20.0 s: `stdchk doctor /mnt/pool`");
  figures.pool.totals.space_wait_ns = 20 * kSecond;  // explains the long call
  has(only_advice(figures), "waited 20.0 s for room");
}

TEST_CASE("what weighs most comes first, and no more than three sentences") {
  auto figures = good();
  figures.pool.lost_chunks = 1;
  figures.pool.totals.sets_overtaken = 7;
  figures.pool.totals.at_risk_ns = 600 * kSecond;
  figures.pool.totals.space_wait_ns = 20 * kSecond;
  figures.pool.totals.writers.equal_bytes = 0;
  const auto advice = recommendations(figures);
  REQUIRE(advice.size() == kAdviceMax);
  has(advice[0], "lost benefactor");
  has(advice[1], "drain took longer");
  has(advice[2], "waited 20.0 s");
}

TEST_CASE("the card has a line for each figure, and the same figures as JSON") {
  const std::string card = card_text(good());
  has(card, "Report card of the pool at /mnt/pool, since 2008-06-17 10:00:00\n");
  has(card, "images      8\n");
  has(card, "written     800.0 MiB\n");
  has(card, "saved       200.0 MiB that the pool had already, 25 %\n");
  has(card, "OT          200.0 MiB/s");
  has(card, "AT          100.0 MiB/s");
  has(card, "longest     2.0 s");
  has(card, "read        300.0 MiB from the pool, 20.0 MiB from caches, 1.0 MiB from the drain");
  has(card, "drained     8 images, 800.0 MiB\n");
  has(card, "at risk     1.0 min");
  has(card, "Nothing in these figures asks for a change.\n");
  CHECK(std::ranges::count(card, '\n') <= 16);
  const auto json = card_json(good());
  CHECK(json.at("saved_bytes").get<std::uint64_t>() == 200 * kMiB);
  CHECK(json.at("ot_bytes_per_second").get<double>() == 200.0 * kMiB);
  CHECK(json.at("at_bytes_per_second").get<double>() == 100.0 * kMiB);
  CHECK(json.at("at_risk_seconds").get<double>() == 59.0);
  CHECK(json.at("read_pool_bytes").get<std::uint64_t>() == 300 * kMiB);
  CHECK(json.at("advice").empty());
}

TEST_CASE("a pool that was not used has a card, too") {
  const ReportFigures nothing;
  has(card_text(nothing), "OT          -");
  CHECK(card_text(nothing).find("\n  read ") == std::string::npos);
  CHECK(card_json(nothing).at("ot_bytes_per_second").get<double>() == 0.0);
  // A chunk may be longer than its used part.
  msg::PoolTotals totals;
  totals.written_bytes = 10;
  totals.stored_bytes = 20;
  CHECK(saved_bytes(totals) == 0);
}
