#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/policy/folder_settings.h"
#include "core/policy/set_naming.h"
#include "tools/base/problem.h"
#include "tools/base/set_names.h"
#include "tools/drained/drained_source.h"

namespace stdchk::tools {

/// The order in which the files of a set are loaded. A set with its marker counts as complete, so
/// the marker follows all members.
enum class LoadPhase : std::uint8_t { kMember, kMarker, kPointer };

/// A DrainedPlace says where a drained file belongs.
struct DrainedPlace {
  std::string folder;  ///< path of the set's folder; of the file's folder if `set` is empty
  std::string set;     ///< empty: of no set
  std::string series;  ///< sets with the same series are loaded in turn, by `order`
  /// Orders the sets of a series: the timestep, or the time of the newest file of a directory.
  std::uint64_t order = 0;
  LoadPhase phase = LoadPhase::kMember;
};

/// A DrainedSets finds the sets of a DrainedSource, by the rules that the pool has left there in links
/// (kPolicyLinkName).
///
/// All paths are relative to the source. Use: add() every file, add_link() every symbolic link, then ask.
///
/// Owns: what it has read. `root` outlives it. Threads: one.
/// Not: files that a pool has not drained; the number of images that only `up --policy` said.
class DrainedSets {
 public:
  /// Reads the rules of the folders above `root`, too.
  explicit DrainedSets(const DrainedSource& root);

  void add(const std::string& file);
  /// Adds a symbolic link. Sets count no links as members, but a link may be a pointer.
  void add_link(const std::string& link);
  /// Returns true for the link `latest` that a pool made itself. The next pool makes its own.
  bool is_of_pool(const std::string& link);
  DrainedPlace place_of(const std::string& file);
  /// Returns true when the file is of a set with this name, as `stdchk set list` shows it.
  bool is_of(const std::string& file, const std::string& set);
  /// Returns the names of the folder's sets to load by default: the newest complete set, and the
  /// sets that its pointers name. Empty: no set of the folder is known to be complete.
  const std::set<std::string>& chosen(const std::string& folder);
  /// Returns the newest complete set of the folder; empty: none.
  const std::string& newest(const std::string& folder);

 private:
  /// The settings in force for a folder.
  struct Rules {
    bool by_directory = false;
    bool is_own = false;  ///< the folder itself has the rule set=directory
    std::map<std::string, std::string, std::less<>> texts;
    std::uint64_t images = 0;
    std::string text(const char* key) const;
  };
  /// A set that is a directory: its number of files, and their times.
  struct Directory {
    std::uint64_t members = 0;
    bool has_marker = false;
    std::int64_t newest_ns = 0;
  };
  struct Folder {
    std::optional<SetIndex> index;  ///< none: sets are directories
    std::map<std::string, Directory> directories;
    std::vector<std::string> pointers;
    std::int64_t pointer_ns = 0;  ///< when the newest pointer was written
    bool is_judged = false;
    std::string newest;
    std::set<std::string> chosen;
  };
  const Rules& rules_of(const std::string& folder);
  static void take_settings(const Outcome<std::string>& text, Rules& rules);
  /// Returns the folder and the name of the directory that is a set and has the file.
  std::optional<std::pair<std::string, std::string>> directory_of(const std::string& file);
  bool is_set(const std::string& folder, const std::string& name);
  Folder& folder_of(const std::string& path);
  void judge(const std::string& path, Folder& folder);
  void judge_directories(const std::string& path, Folder& folder);

  const DrainedSource& root_;
  std::map<std::string, Rules> rules_;
  std::map<std::string, Folder> folders_;
};

}  // namespace stdchk::tools
