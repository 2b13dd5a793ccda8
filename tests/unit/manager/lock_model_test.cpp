// Compares the lock table with a model of bytes, over random requests of processes with several
// threads.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "manager/locks/lock_table.h"
#include "tests/support/catch.h"

namespace {

using namespace stdchk;
using namespace stdchk::manager;
using Kind = msg::LockKind;
using msg::LockOutcome;

constexpr std::uint64_t kFiles = 2;
constexpr std::uint64_t kBytes = 4;  ///< of each file
constexpr std::uint64_t kOwners = 4;
constexpr int kSteps = 60;

/// A Model has the kind of each owner's lock on each byte, and the requests that wait.
///
/// Not: the order of the requests.
class Model {
 public:
  std::set<std::uint64_t> excluders(const FileLock& wanted) const {
    std::set<std::uint64_t> out;
    for (std::uint64_t owner = 0; owner < kOwners; ++owner) {
      if (owner == wanted.owner.number) continue;
      for (std::uint64_t byte = wanted.first; byte <= wanted.last; ++byte) {
        const Kind held = kinds_[owner][wanted.file.value][byte];
        const bool excludes =
            held == Kind::kExclusive || (held == Kind::kShared && wanted.kind == Kind::kExclusive);
        if (excludes) out.insert(owner);
      }
    }
    return out;
  }
  void set(const FileLock& lock) {
    for (std::uint64_t byte = lock.first; byte <= lock.last; ++byte) {
      kinds_[lock.owner.number][lock.file.value][byte] = lock.kind;
    }
  }
  void release_all(std::uint64_t owner) { kinds_[owner] = {}; }
  /// Returns true when an owner waits for itself: no order of ends would ever let all go on.
  bool has_circle() const {
    std::set<std::uint64_t> left;
    for (const auto& [ticket, wanted] : waits) left.insert(wanted.owner.number);
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::uint64_t owner : left) {
        const bool is_stuck = std::ranges::any_of(waits, [&](const auto& wait) {
          if (wait.second.owner.number != owner) return false;
          const auto others = excluders(wait.second);
          return std::ranges::any_of(others, [&](std::uint64_t one) { return left.contains(one); });
        });
        if (is_stuck) continue;
        left.erase(owner);
        moved = true;
        break;
      }
    }
    return !left.empty();
  }

  std::map<std::uint64_t, FileLock> waits;  ///< by ticket

 private:
  std::array<std::array<std::array<Kind, kBytes>, kFiles>, kOwners> kinds_{};
};

/// A Run makes random requests to a LockTable and to a Model.
class Run {
 public:
  explicit Run(std::uint64_t seed) : random_(seed) {}

  void step() {
    const FileLock lock = any();
    const bool is_free = model_.excluders(lock).empty();
    REQUIRE(table_.excluding(lock).has_value() == !is_free);
    now_ += std::chrono::milliseconds(300 * random_.below(4));
    const std::uint64_t what = random_.below(4);
    if (what == 0) {
      FileLock range = lock;
      range.kind = Kind::kNone;
      REQUIRE(table_.release(range));
      model_.set(range);
    } else if (what == 1) {
      const LockOutcome outcome = table_.take(lock).value();
      REQUIRE(outcome == (is_free ? LockOutcome::kGranted : LockOutcome::kRefused));
      if (is_free) model_.set(lock);
    } else {
      wait(lock, is_free);
    }
    settle();
  }

  /// Owners that do not wait release their locks. All others must get theirs.
  void end() {
    for (std::uint64_t round = 0; round < kOwners + 1; ++round) {
      std::set<std::uint64_t> waiting;
      for (const auto& [ticket, wanted] : model_.waits) waiting.insert(wanted.owner.number);
      for (std::uint64_t owner = 0; owner < kOwners; ++owner) {
        if (waiting.contains(owner)) continue;
        for (std::uint64_t file = 0; file < kFiles; ++file) {
          REQUIRE(table_.release(make(owner, file, Kind::kNone, 0, kBytes - 1)));
        }
        model_.release_all(owner);
      }
      now_ += LockTable::kPassAfter;
      settle();
    }
    REQUIRE(table_.wait_count() == 0);
  }

  std::size_t deadlocks() const { return deadlocks_; }

 private:
  static FileLock make(std::uint64_t owner, std::uint64_t file, Kind kind, std::uint64_t first,
                       std::uint64_t last) {
    return {FileId{file}, msg::LockSpace::kRecord, kind, {ClientId{1}, owner}, 0, first, last};
  }
  FileLock any() {
    const std::uint64_t first = random_.below(kBytes);
    return make(random_.below(kOwners), random_.below(kFiles),
                random_.below(2) == 0 ? Kind::kShared : Kind::kExclusive, first,
                first + random_.below(kBytes - first));
  }
  void wait(const FileLock& lock, bool is_free) {
    const std::uint64_t ticket = ++tickets_;
    const LockOutcome outcome =
        table_.wait(lock, {ClientId{1}, ticket}, now_, now_ + std::chrono::hours(1)).value();
    if (outcome == LockOutcome::kGranted) {
      REQUIRE(is_free);
      return model_.set(lock);
    }
    model_.waits.emplace(ticket, lock);
    REQUIRE((outcome == LockOutcome::kDeadlock) == model_.has_circle());
    if (outcome != LockOutcome::kDeadlock) return;
    ++deadlocks_;
    model_.waits.erase(ticket);
  }
  /// Grants what can be granted, and drops what waits for itself.
  void settle() {
    const auto all = [](const WaitId&) { return true; };
    for (const WaitId& id : table_.grant(all, now_)) {
      const auto granted = model_.waits.extract(id.ticket);
      REQUIRE_FALSE(granted.empty());
      REQUIRE(model_.excluders(granted.mapped()).empty());
      model_.set(granted.mapped());
    }
    for (const WaitId& id : table_.drop_deadlocked(all)) {
      REQUIRE(model_.has_circle());
      REQUIRE(model_.waits.erase(id.ticket) == 1);
      ++deadlocks_;
    }
    REQUIRE_FALSE(model_.has_circle());
    REQUIRE(table_.wait_count() == model_.waits.size());
  }

  Prng random_;
  LockTable table_;
  Model model_;
  Time now_{};
  std::uint64_t tickets_ = 0;
  std::size_t deadlocks_ = 0;
};

}  // namespace

TEST_CASE("random locks agree with a model of bytes, no circle stays, and all waits end") {
  std::size_t deadlocks = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    Run run(seed);
    for (int step = 0; step < kSteps; ++step) run.step();
    run.end();
    deadlocks += run.deadlocks();
  }
  CHECK(deadlocks > 100);
}
