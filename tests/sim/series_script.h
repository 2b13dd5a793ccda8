#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sim/plain_client.h"

namespace stdchk::sim {

/// What a folder asks for about its sets.
struct SeriesOptions {
  std::uint64_t keep = 1;
  std::uint64_t purge_after_s = 0;
  bool must_be_drained = false;
  std::uint64_t drain_every = 1;
};

/// A SeriesScript writes one application's timesteps, each a set of images, into a folder with a
/// policy, pins some, and reads those of before: one may be gone only when the policy allows it.
///
/// One operation runs at a time.
/// Owns: what it has written; not the cluster and the clients. Threads: one.
class SeriesScript {
 public:
  using Complain = std::function<void(const std::string&)>;
  using Note = std::function<void(std::uint64_t)>;

  SeriesScript(Cluster& cluster, std::uint64_t seed, SeriesOptions options, Complain complain,
               Note note);

  /// Begins the next operation, unless one runs or may still happen.
  void start_one(PlainClient& client);
  /// What it had begun may have happened.
  void client_died(const PlainClient& client);
  bool idle() const { return client_ == nullptr; }
  std::uint64_t operations() const { return operations_; }
  /// Without faults, after a while: sets that the policy gives up are gone, the newest complete one
  /// is there, and the link names it.
  void check_settled() const;
  /// Removes every image, one after the other. None is left when it is idle again.
  void remove_all(PlainClient& client);

 private:
  static constexpr std::uint64_t kImages = 2;
  enum class Stored : std::uint8_t { kNot, kMaybe, kYes };
  struct Timestep {
    std::vector<std::byte> bytes[kImages];
    Stored stored[kImages] = {Stored::kNot, Stored::kNot};
    bool pinned = false;
    Time begun{};
    /// It was not whole for so long that its first image may have been removed as too old.
    bool late = false;
    bool written() const { return stored[0] == Stored::kYes && stored[1] == Stored::kYes; }
    bool complete() const { return written() && !late; }
    bool may_be_complete() const { return stored[0] != Stored::kNot && stored[1] != Stored::kNot; }
  };

  void make_folder();
  void set_policy();
  void write();
  void load();
  void pin();
  void list();
  void seen(std::uint64_t timestep, std::uint64_t image, const Result<std::vector<std::byte>>& got);
  bool is_old(const Timestep& timestep) const;
  bool may_be_gone(std::uint64_t timestep) const;
  void remove_next();
  /// Wraps what takes an answer: it counts only while this operation runs.
  template <class Argument>
  std::function<void(Argument)> while_running(std::function<void(Argument)> done);
  void end(std::uint64_t outcome);
  static std::string name(std::uint64_t timestep, std::uint64_t image);

  Cluster& cluster_;
  Prng prng_;
  const SeriesOptions options_;
  Complain complain_;
  Note note_;
  FileId folder_;  ///< none: it is not known
  bool has_policy_ = false;
  std::vector<Timestep> timesteps_;  ///< number i + 1 at i
  PlainClient* client_ = nullptr;    ///< of the operation that runs
  std::function<void()> if_lost_;    ///< what its client's death means
  std::uint64_t operations_ = 0;
  Time settled_{};
};

}  // namespace stdchk::sim
