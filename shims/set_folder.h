#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace stdchk::shims {

// The marker of a complete set. The pool drains it after all other files of the set.
constexpr const char* kMarker = "stdchk.complete";

// A SetNote is the content of a set's marker file.
struct SetNote {
  std::int64_t id = 0;  // grows from set to set
  std::int64_t flags = 0;
  std::int64_t ranks = 0;
  bool is_dropped = false;  // the program does not want to restart from this set
  std::string name;         // as the program knows the set; any bytes but newlines
};

// A NotedSet is a complete set: its directory, with the path, and its note.
struct NotedSet {
  std::string directory;
  SetNote note;
};

// A SetFolder is a folder of a mounted pool. Its subdirectories are sets of files, complete when
// they have a marker.
//
// Threads: one. The first rank changes the folder, all ranks read it.
// Errors: sentences; an empty sentence is success.
class SetFolder {
 public:
  explicit SetFolder(std::string path, std::string prefix)
      : path_(std::move(path)), prefix_(std::move(prefix)) {}

  // Makes the folder and gives it the rules of sets. An error when another user could change what
  // is stored there.
  [[nodiscard]] std::string create() const;
  // Changes the folder's policy `key`, if it is another one. The pool may refuse it.
  [[nodiscard]] std::string set_policy(const std::string& key, const std::string& value) const;
  // Removes the sets without a marker: their writers are gone.
  void remove_incomplete() const;
  // Makes the directory of a set, empty, and returns its path in `*directory`.
  [[nodiscard]] std::string begin(const std::string& suffix, std::string* directory) const;

  // Returns the complete sets, the one with the highest id first.
  std::vector<NotedSet> complete() const;
  std::string path() const { return path_; }
  // Returns the path of a set's directory, which begins with the folder's prefix.
  std::string directory_of(const std::string& suffix) const {
    return path_ + "/" + prefix_ + suffix;
  }

 private:
  std::string path_;
  std::string prefix_;
};

// Writes the marker: the set is complete now. Also changes the note of a complete set.
[[nodiscard]] std::string write_note(const std::string& directory, const SetNote& note);
std::optional<SetNote> read_note(const std::string& directory);
// Reads the marker. Looks again for `patience`, because another host's mount may know for a second
// that it is absent.
std::optional<SetNote> await_note(const std::string& directory, std::chrono::milliseconds patience);
// Removes the directory of a set, its marker first.
void remove_set(const std::string& directory);

// Whether `path`, or the nearest folder above it that exists, lies in a mounted pool.
bool is_in_pool(const std::string& path);
bool is_file(const std::string& path);
// Makes the folders above `path`.
[[nodiscard]] std::string make_folders_above(const std::string& path);
// Returns the path from the root, without "." and "..".
std::string absolute(const std::string& path);

}  // namespace stdchk::shims
