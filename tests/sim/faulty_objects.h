#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benefactor/drain/object_drainer.h"
#include "core/base/clock.h"
#include "core/objects/object_store.h"
#include "tests/support/memory_object_store.h"

namespace stdchk::sim {

/// The chances of faults of an object store, in parts per million of its calls.
struct ObjectFaults {
  std::uint32_t fail_ppm = 0;  ///< the call fails, half of the time after it was carried out
  std::uint32_t cut_ppm = 0;   ///< a read ends before its last byte
  std::uint32_t slow_ppm = 0;  ///< the call takes up to kSlowMax
  std::uint32_t die_ppm = 0;   ///< the benefactor dies, half of the time after the call

  static constexpr Duration kUsualMax = std::chrono::milliseconds(20);
  static constexpr Duration kSlowMax = std::chrono::seconds(40);
};

struct ObjectFaultCounts {
  std::uint64_t failed = 0;
  std::uint64_t answers_lost = 0;
  std::uint64_t cut = 0;
  std::uint64_t slow = 0;
  std::uint64_t too_late = 0;  ///< calls that ended after their deadline
  std::uint64_t died = 0;
  std::map<std::string, std::uint64_t> died_in;  ///< by the name of the call
};

/// The simulation's functions that a FaultyObjects calls.
struct ObjectHooks {
  /// The benefactor `life` has died. Its store carries nothing out any more.
  std::function<void(std::uint64_t life)> died;
  /// A call has changed the object.
  std::function<void(const std::string& key)> changed;
  /// The note of that upload was removed.
  std::function<void(const std::string& upload)> note_removed;
};

/// A FaultyObjects makes the drainers of a simulated pool. All drainers share one MemoryObjectStore, and
/// each reaches it through faults of its own.
///
/// A call takes time by the drainer's own clock, from the begin of the drainer's work. So an upload
/// reaches its deadline in the middle, although the work is done at a single moment of the pool's time.
///
/// Threads: one. Not: calls that are carried out after their caller has left, changed bytes.
class FaultyObjects {
 public:
  static constexpr const char* kPlace = "s3://sim/run";
  static constexpr const char* kPrefix = "run";

  FaultyObjects(MemoryObjectStore& store, ObjectHooks hooks, std::uint64_t seed)
      : store_(store), hooks_(std::move(hooks)), prng_(seed) {}
  FaultyObjects(const FaultyObjects&) = delete;
  FaultyObjects& operator=(const FaultyObjects&) = delete;

  /// Applies to later calls, also of the drainers that were made before.
  void set_faults(const ObjectFaults& faults) { faults_ = faults; }
  const ObjectFaultCounts& counts() const { return counts_; }
  std::string describe() const;
  /// `arena` and `clock` must outlive the drainer, and so must this object.
  std::unique_ptr<benefactor::Drainer> make_drainer(ByteSpan arena, const Clock& clock,
                                                    std::uint64_t life);

 private:
  class Store;
  class Drainer;
  class WorkClock;

  MemoryObjectStore& store_;
  const ObjectHooks hooks_;
  Prng prng_;
  ObjectFaults faults_;
  ObjectFaultCounts counts_;
  benefactor::Stop stop_{[](Duration) {}};
};

}  // namespace stdchk::sim
