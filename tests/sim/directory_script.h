#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/set_script.h"

namespace stdchk::sim {

/// A DirectoryScript writes checkpoints that are directories (rule set=directory) into a folder
/// with `keep`. It writes the shards, then the marker, then the pointer beside the directories. Some
/// markers and pointers are written under another name, and renamed.
/// After a failed write it leaves the directory unfinished, and begins the next one.
///
/// So the model is simple: where a marker is, all shards are, and the pointer names such a
/// directory. The length of the pointer says which.
///
/// Owns: its model. Threads: one.
class DirectoryScript final : public SetScript {
 public:
  DirectoryScript(Cluster& cluster, std::uint64_t seed, std::uint64_t keep, Complain complain,
                  Note note);

  /// Begins the next operation now and then, unless one runs or may still happen.
  void start_one(PlainClient& client);
  /// Checks that `latest` and the pointer name whole directories of the pool.
  void check() const;
  /// Returns the bytes of a drained file by its path; nothing when there is no such file.
  using DrainedLength = std::function<std::optional<std::uint64_t>(const std::string& path)>;
  /// Checks that each directory with a marker, and the one that the pointer names, is whole where
  /// the pool drains to.
  void check_drained(const DrainedLength& length_of_drained) const;
  static DrainedLength lengths_in(std::string drain_directory);
  /// Checks the pool after a pause without faults: the newest complete directory is there, `latest`
  /// names it, and `keep` has removed others.
  void check_settled() const;

 private:
  enum class Step : std::uint8_t { kDirectory, kShards, kMarker, kPointer };
  struct Checkpoint {
    FileId directory;                    ///< none: not made, or unknown
    std::vector<std::uint64_t> lengths;  ///< of the shards
    Step step = Step::kDirectory;
    std::size_t stored = 0;  ///< shards that are surely stored
    bool has_marker = false;
    bool may_have_marker = false;
  };

  void set_rule();
  void set_policy();
  void write();
  void begin();
  void make_directory();
  void store(const std::string& name, FileId parent, std::uint64_t length);
  void rename(const std::string& from, const std::string& to, FileId parent);
  void stored(const Ending& ending);
  void give_up();
  void list();
  std::string fault_of(std::uint64_t number) const;
  /// Returns the length of a file in bytes; 0: the pool has no such file.
  std::uint64_t length_of(const manager::File& directory, const std::string& name) const;
  std::uint64_t sets_begun() const override { return checkpoints_.size(); }

  const std::uint64_t keep_;
  std::size_t rules_set_ = 0;
  bool has_policy_ = false;
  std::vector<Checkpoint> checkpoints_;  ///< checkpoint number i at index i; the last is under way
};

}  // namespace stdchk::sim
