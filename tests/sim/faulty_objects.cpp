#include "tests/sim/faulty_objects.h"

#include <fmt/core.h>

#include <cerrno>
#include <utility>

namespace stdchk::sim {

/// A WorkClock is a benefactor's clock that runs while the drainer waits for the store.
class FaultyObjects::WorkClock final : public Clock {
 public:
  explicit WorkClock(const Clock& of) : of_(of) {}
  Time now() const override { return of_.now() + spent_; }
  std::int64_t wall_ns() const override { return of_.wall_ns(); }
  void begin() { spent_ = {}; }
  void spend(Duration time) { spent_ += time; }

 private:
  const Clock& of_;
  Duration spent_{};
};

/// A Store is one benefactor's way to the object store.
class FaultyObjects::Store final : public ObjectStore {
 public:
  Store(FaultyObjects& of, WorkClock& clock, std::uint64_t life)
      : of_(of), to_(of.store_), clock_(clock), life_(life) {}

  Outcome<std::string> put(const std::string& key, ByteSpan bytes, const ObjectMetadata& metadata,
                           const Condition& condition, Time deadline) override {
    return change("put", key, deadline,
                  [&] { return to_.put(key, bytes, metadata, condition, deadline); });
  }
  Outcome<void> get(const std::string& key, const Range& range, Time deadline) override {
    if (draws(of_.faults_.cut_ppm) && !dead_) {
      ++of_.counts_.cut;
      const Range half{range.offset, range.to.first(range.to.size() / 2), range.etag};
      (void)to_.get(key, half, deadline);
      return failure("get", Code::kSystem);
    }
    return call("get", deadline, [&] { return to_.get(key, range, deadline); });
  }
  Outcome<Found> find(const std::string& key, Time deadline) override {
    return call("find", deadline, [&] { return to_.find(key, deadline); });
  }
  Outcome<void> remove(const std::string& key, Time deadline) override {
    const auto removed = key.ends_with("/upload") ? to_.object(key) : std::nullopt;
    return change("remove", key, deadline, [&] {
      auto done = to_.remove(key, deadline);
      if (done && removed) of_.hooks_.note_removed(id_of(removed->bytes));
      return done;
    });
  }
  Outcome<Page> list(const std::string& prefix, const std::string& from, Time deadline) override {
    return call("list", deadline, [&] { return to_.list(prefix, from, deadline); });
  }
  Outcome<void> copy(const std::string& from, const std::string& to,
                     const std::optional<ObjectMetadata>& metadata, Time deadline) override {
    return change("copy", to, deadline, [&] { return to_.copy(from, to, metadata, deadline); });
  }
  Outcome<std::string> begin_upload(const std::string& key, const ObjectMetadata& metadata,
                                    Time deadline) override {
    return call("begin", deadline, [&] { return to_.begin_upload(key, metadata, deadline); });
  }
  Outcome<Part> upload_part(const Upload& upload, std::uint32_t number, ByteSpan bytes,
                            Time deadline) override {
    return call("part", deadline, [&] { return to_.upload_part(upload, number, bytes, deadline); });
  }
  Outcome<void> complete_upload(const Upload& upload, const std::vector<Part>& parts,
                                Time deadline) override {
    return change("complete", upload.key, deadline,
                  [&] { return to_.complete_upload(upload, parts, deadline); });
  }
  Outcome<void> abort_upload(const Upload& upload, Time deadline) override {
    return call("abort", deadline, [&] { return to_.abort_upload(upload, deadline); });
  }
  Outcome<std::vector<Upload>> uploads(const std::string& prefix, Time deadline) override {
    return call("uploads", deadline, [&] { return to_.uploads(prefix, deadline); });
  }
  Outcome<std::vector<Part>> parts(const Upload& upload, Time deadline) override {
    return call("parts", deadline, [&] { return to_.parts(upload, deadline); });
  }

 private:
  bool draws(std::uint32_t ppm) { return of_.prng_.below(1'000'000) < ppm; }
  Duration draw_time(Duration most) {
    return Duration(
        static_cast<Duration::rep>(of_.prng_.below(static_cast<std::uint64_t>(most.count()))));
  }
  /// Returns the first line of a note: the id of its upload.
  static std::string id_of(ByteSpan note) {
    const std::string text(reinterpret_cast<const char*>(note.data()), note.size());
    return text.substr(0, text.find('\n'));
  }
  static tl::unexpected<Problem> failure(const char* name, Code code) {
    return problem(code, "sim.objects", EIO, fmt::format("{}: a fault on purpose", name));
  }

  template <class Work>
  auto change(const char* name, const std::string& key, Time deadline, Work work)
      -> decltype(work()) {
    return call(name, deadline, [&] {
      auto done = work();
      if (done) of_.hooks_.changed(key);
      return done;
    });
  }
  /// Carries the call out, unless a fault prevents that.
  template <class Work>
  auto call(const char* name, Time deadline, Work work) -> decltype(work()) {
    if (dead_) return failure(name, Code::kCancelled);
    const bool before = of_.prng_.chance(1, 2);
    if (draws(of_.faults_.die_ppm)) {
      if (!before) (void)work();
      return die(name);
    }
    const bool slow = draws(of_.faults_.slow_ppm);
    of_.counts_.slow += slow ? 1 : 0;
    clock_.spend(draw_time(slow ? ObjectFaults::kSlowMax : ObjectFaults::kUsualMax));
    if (clock_.now() >= deadline) {
      ++of_.counts_.too_late;
      if (!before) (void)work();
      return failure(name, Code::kDeadline);
    }
    if (draws(of_.faults_.fail_ppm)) {
      ++(before ? of_.counts_.failed : of_.counts_.answers_lost);
      if (!before) (void)work();
      return failure(name, before ? Code::kSystem : Code::kPeerLost);
    }
    return work();
  }
  tl::unexpected<Problem> die(const char* name) {
    dead_ = true;
    ++of_.counts_.died;
    ++of_.counts_.died_in[name];
    of_.hooks_.died(life_);
    return failure(name, Code::kCancelled);
  }

  FaultyObjects& of_;
  MemoryObjectStore& to_;
  WorkClock& clock_;
  const std::uint64_t life_;
  bool dead_ = false;
};

/// A Drainer begins each piece of work at the benefactor's own time.
class FaultyObjects::Drainer final : public benefactor::Drainer {
 public:
  Drainer(FaultyObjects& of, ByteSpan arena, const Clock& clock, std::uint64_t life)
      : clock_(clock),
        inner_(
            arena,
            [&of, this, life]() -> Outcome<std::unique_ptr<ObjectStore>> {
              return std::make_unique<Store>(of, clock_, life);
            },
            {kPrefix, 0, 1}, clock_, of.stop_) {}

  Outcome<msg::DrainPieces::Reply> write_pieces(const msg::DrainPieces& request,
                                                Time deadline) override {
    clock_.begin();
    return inner_.write_pieces(request, deadline);
  }
  Outcome<msg::DrainFinish::Reply> finish(const msg::DrainFinish& request, Time deadline) override {
    clock_.begin();
    return inner_.finish(request, deadline);
  }
  Outcome<msg::MirrorChange::Reply> mirror(const msg::MirrorChange& request,
                                           Time deadline) override {
    clock_.begin();
    return inner_.mirror(request, deadline);
  }
  Outcome<msg::FindDrained::Reply> find(const msg::FindDrained& request, Time deadline) override {
    clock_.begin();
    return inner_.find(request, deadline);
  }

 private:
  WorkClock clock_;
  benefactor::ObjectDrainer inner_;
};

std::unique_ptr<benefactor::Drainer> FaultyObjects::make_drainer(ByteSpan arena, const Clock& clock,
                                                                 std::uint64_t life) {
  return std::make_unique<Drainer>(*this, arena, clock, life);
}

std::string FaultyObjects::describe() const {
  std::string text = fmt::format(
      "failed store calls {}, lost answers of the store {}, cut reads of objects {}, slow store "
      "calls {}, store calls past their deadline {}, benefactors that died in a store call {}",
      counts_.failed, counts_.answers_lost, counts_.cut, counts_.slow, counts_.too_late,
      counts_.died);
  for (const auto& [name, count] : counts_.died_in) {
    text += fmt::format(", died in {} {}", name, count);
  }
  return text;
}

}  // namespace stdchk::sim
