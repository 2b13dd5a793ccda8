#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "manager/sets.h"
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
/// Now and then a timestep is written again, as by a job that begins again from the one before; so
/// is one of which an image has failed. Some images are committed empty first. Each time is a
/// round, and the length of an image says of which one it is. For a time the folder may ask for
/// another number of images: what was whole before stays so.
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
  /// At any time the link names no set of which images are missing, empty, or of several rounds.
  void check_latest() const;
  /// The same of the link in the drain directory, and the files there.
  void check_drained_latest(const std::string& drain_directory) const;
  /// Without faults, after a while: sets that the policy gives up are gone, the newest complete one
  /// is there, and the link names it.
  void check_settled() const;
  /// Removes every image, one after the other. None is left when it is idle again.
  void remove_all(PlainClient& client);

 private:
  static constexpr std::size_t kImages = 3;
  enum class Stored : std::uint8_t { kNot, kMaybe, kYes };
  using Bytes = std::vector<std::byte>;
  struct Image {
    Bytes bytes;  ///< of this round
    Stored stored = Stored::kNot;
    bool empty_first = false;    ///< is still to be committed empty
    std::vector<Bytes> earlier;  ///< what it may show while these are not stored
    bool is_there = false;       ///< it shows something
  };
  struct Timestep {
    Image images[kImages];
    std::uint64_t round = 0;
    std::size_t first = 0;  ///< image of a round
    bool failed = false;    ///< the round
    bool counted = false;   ///< it was whole while the folder asked for so many images
    bool pinned = false;
    Time begun{};
    /// It did not count for so long that its first image may have been removed as too old.
    bool late = false;
    std::uint64_t changed = 0;        ///< operation that wrote it last
    std::set<std::size_t> overtaken;  ///< by these since then, which may have been complete
    bool written() const {
      return all([](Stored stored) { return stored == Stored::kYes; });
    }
    bool complete() const { return written() && !late; }
    bool may_be_complete() const {
      return all([](Stored stored) { return stored != Stored::kNot; });
    }
    template <class Predicate>
    bool all(Predicate predicate) const {
      return std::ranges::all_of(images, predicate, &Image::stored);
    }
  };

  void make_folder();
  void set_policy();
  void ask_for_images();
  void asked_for_images(std::uint64_t images);
  void write();
  void begin_round(std::size_t index);
  std::size_t newest_image(std::size_t index);
  void settle(std::size_t index, std::size_t image, bool empty, const Ending& ending);
  void load();
  void pin();
  void list();
  void seen(std::uint64_t timestep, std::uint64_t image, const Result<std::vector<std::byte>>& got);
  void check_named(const std::string& link, std::uint64_t timestep,
                   const std::vector<std::uint64_t>& sizes) const;
  bool may_never_count(const manager::ImageSet& set) const;
  bool must_count(const manager::ImageSet& set) const;
  bool is_old(const Timestep& timestep) const;
  bool may_be_gone(std::uint64_t timestep) const;
  void remove_next();
  /// Wraps what takes an answer: it counts only while this operation runs.
  template <class Argument>
  std::function<void(Argument)> while_running(std::function<void(Argument)> done);
  void end(std::uint64_t outcome);
  static std::string name(std::uint64_t timestep, std::uint64_t image);
  const manager::File* folder() const;

  Cluster& cluster_;
  Prng prng_;
  const SeriesOptions options_;
  Complain complain_;
  Note note_;
  FileId folder_;  ///< none: it is not known
  bool has_policy_ = false;
  std::optional<std::uint64_t> images_ = kImages;  ///< that the folder asks for; none: not known
  std::vector<Timestep> timesteps_;                ///< number i + 1 at i
  std::size_t current_ = 0;                        ///< the one that is written, or was last
  PlainClient* client_ = nullptr;                  ///< of the operation that runs
  std::function<void()> if_lost_;                  ///< what its client's death means
  std::uint64_t operations_ = 0;
  std::uint64_t rounds_ = 0;  ///< begun
  Time settled_{};
};

}  // namespace stdchk::sim
