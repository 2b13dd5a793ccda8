#pragma once

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/policy/set_naming.h"
#include "manager/sets/set_keeper.h"
#include "tests/sim/set_script.h"

namespace stdchk::sim {

/// The settings of a folder that concern its sets.
struct SeriesOptions {
  std::uint64_t keep = 1;
  std::uint64_t purge_after_s = 0;
  bool must_be_drained = false;
  std::uint64_t drain_every = 1;
  /// The names follow a rule `series` with zeros and a word, as LAMMPS writes them, and not A.Ni.Tj.
  bool by_pattern = false;
};

/// A SeriesScript writes timesteps of one application, each a set of images, into a folder with a
/// policy. It pins some sets, and reads earlier sets: a set may be gone only when the policy allows
/// it.
///
/// Now and then the script rewrites a timestep: after a failed image, or as a restarted job does.
/// It commits some images empty first. Each rewriting is a round, and an image's length tells its
/// round. For a time the folder may ask for another number of images; sets that were whole before
/// stay whole.
///
/// Owns: its model. Threads: one.
class SeriesScript final : public SetScript {
 public:
  SeriesScript(Cluster& cluster, std::uint64_t seed, SeriesOptions options, Complain complain,
               Note note);

  /// Begins the next operation, unless one runs or may still happen.
  void start_one(PlainClient& client);
  /// Checks that the link names no set with missing or empty images, or of several rounds.
  void check_latest() const;
  /// Checks the same of the link and the files in the drain directory.
  void check_drained_latest(const std::string& drain_directory) const;
  /// Checks the pool after a pause without faults. Sets that the policy gives up are gone. The
  /// newest complete set exists, and the link names it.
  void check_settled() const;

 private:
  static constexpr std::size_t kImages = 3;
  enum class Stored : std::uint8_t { kNot, kMaybe, kYes };
  using Bytes = std::vector<std::byte>;
  struct Image {
    Bytes bytes;  ///< content of this round
    Stored stored = Stored::kNot;
    bool empty_first = false;    ///< must still be committed empty
    std::vector<Bytes> earlier;  ///< contents it may show while `bytes` is not stored
    bool is_there = false;       ///< the name shows some content
  };
  struct Timestep {
    Image images[kImages];
    std::uint64_t round = 0;
    std::size_t first = 0;  ///< image that begins a round
    bool failed = false;    ///< the round has failed
    bool counted = false;   ///< was whole while the folder asked for this number of images
    bool pinned = false;
    Time begun{};
    /// Was incomplete for so long that the policy may have removed its first image as too old.
    bool late = false;
    std::uint64_t changed = 0;        ///< number of the operation that last wrote it
    std::set<std::size_t> overtaken;  ///< later timesteps that may have been complete
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
  std::uint64_t sets_begun() const override { return timesteps_.size(); }
  std::string name(std::uint64_t timestep, std::uint64_t image) const;
  std::string set_of(std::uint64_t timestep) const { return naming_.set_of(name(timestep, 0)); }
  /// Returns the timestep of a set's name, such as "job.*.T7"; nothing for other texts.
  std::optional<std::uint64_t> timestep_of(std::string set) const;
  /// Returns the policy's value for a set of `images` files. The base file is not counted.
  std::uint64_t ranks_of(std::uint64_t images) const {
    return images - (options_.by_pattern && images > 0 ? 1 : 0);
  }
  void set_rule();

  const SeriesOptions options_;
  const SetNaming naming_;
  bool has_rule_ = false;
  bool has_policy_ = false;
  /// images that the folder asks for; none: unknown
  std::optional<std::uint64_t> images_ = kImages;
  std::vector<Timestep> timesteps_;  ///< timestep number i + 1 at index i
  std::size_t current_ = 0;          ///< timestep under way or last written
  std::uint64_t rounds_ = 0;         ///< rounds begun
};

}  // namespace stdchk::sim
