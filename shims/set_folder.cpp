#include "shims/set_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace stdchk::shims {
namespace {

namespace fs = std::filesystem;
constexpr const char* kFirstLine = "stdchk set 1";
constexpr const char* kBegun = "stdchk.begun";

std::string failure(const std::string& what, const std::string& path, int error) {
  return "cannot " + what + " " + path + ": " + std::strerror(error);
}

std::string attribute_of(const std::string& path, const std::string& name) {
  char value[256];
  const ssize_t length = ::getxattr(path.c_str(), name.c_str(), value, sizeof value);
  return length > 0 ? std::string(value, static_cast<std::size_t>(length)) : "";
}

// Leaves an equal value alone: a rule that is set begins the generations of sets anew.
std::string set_attribute(const std::string& path, const std::string& name,
                          const std::string& value) {
  if (attribute_of(path, name) == value) return "";
  if (::setxattr(path.c_str(), name.c_str(), value.data(), value.size(), 0) == 0) return "";
  return failure("set " + name + "=" + value + " of", path, errno);
}

std::string write_file(const std::string& path, const std::string& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return failure("write", path, errno);
  const bool is_written =
      ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  const int error = errno;
  // close(2) commits the file, and says whether that was possible.
  if (::close(file) != 0) return failure("write", path, errno);
  return is_written ? "" : failure("write", path, error);
}

// Says which folder lets another user put links or files of his own in place of checkpoints. Looks
// at `path` and the folders above it in the same file system, without its root. A folder's owner
// decides who is in its group, so the group is trusted.
std::string distrust(const fs::path& path) {
  struct stat facts {
  }, above{};
  for (fs::path place = path; place.has_relative_path(); place = place.parent_path()) {
    if (::lstat(place.c_str(), &facts) != 0 || ::lstat(place.parent_path().c_str(), &above) != 0) {
      return failure("look at", place, errno);
    }
    if (facts.st_dev != above.st_dev) return "";
    if (facts.st_uid != ::geteuid() && facts.st_uid != 0) {
      return place.string() + " belongs to another user (uid " + std::to_string(facts.st_uid) +
             "). That user could change the checkpoints: choose another folder";
    }
    const bool others_write = (facts.st_mode & S_IWOTH) != 0 && (facts.st_mode & S_ISVTX) == 0;
    if (others_write && S_ISDIR(facts.st_mode)) {
      return "all users can write in " + place.string() +
             " and change the checkpoints: take that right away, or choose another folder";
    }
  }
  return "";
}

}  // namespace

std::string SetFolder::create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) return failure("make the folder", path_, error.value());
  for (const fs::path& path : {fs::path(path_), fs::canonical(path_, error)}) {
    if (error) return failure("look at", path_, error.value());
    if (auto problem = distrust(path); !problem.empty()) return problem;
  }
  const std::pair<const char*, std::string> rules[] = {
      {"user.stdchk.rule.set", "directory"},
      {"user.stdchk.rule.set-names", prefix_ + "*"},
      {"user.stdchk.rule.marker", kMarker},
      // The pool's own number of images is that of other programs.
      {"user.stdchk.policy.images", "1"},
  };
  for (const auto& [name, value] : rules) {
    if (auto problem = set_attribute(path_, name, value); !problem.empty()) return problem;
  }
  return "";
}

std::string SetFolder::set_policy(const std::string& key, const std::string& value) const {
  return set_attribute(path_, "user.stdchk.policy." + key, value);
}

void SetFolder::remove_incomplete() const {
  std::error_code ignored;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    if (entry.path().filename().string().starts_with(prefix_) && entry.is_directory(ignored) &&
        !entry.is_symlink(ignored) && !is_file(entry.path() / kMarker)) {
      found.push_back(entry.path());
    }
  }
  for (const auto& directory : found) remove_set(directory);
}

std::string SetFolder::begin(const std::string& suffix, std::string* directory) const {
  *directory = directory_of(suffix);
  remove_set(*directory);
  // The policy `keep` removes an empty directory as an old set. So the first file comes before the
  // final name.
  const std::string unnamed = path_ + "/.begun." + suffix, begun = unnamed + "/" + kBegun;
  remove_set(unnamed);
  std::error_code error;
  fs::create_directory(unnamed, error);
  if (error) return failure("make the folder", unnamed, error.value());
  if (auto problem = write_file(begun, "begun\n"); !problem.empty()) return problem;
  fs::rename(unnamed, *directory, error);
  return error ? failure("make the folder", *directory, error.value()) : "";
}

std::vector<NotedSet> SetFolder::complete() const {
  std::vector<NotedSet> sets;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    if (!entry.path().filename().string().starts_with(prefix_)) continue;
    if (auto note = read_note(entry.path())) sets.push_back({entry.path(), *note});
  }
  std::sort(sets.begin(), sets.end(),
            [](const NotedSet& a, const NotedSet& b) { return a.note.id > b.note.id; });
  return sets;
}

std::string write_note(const std::string& directory, const SetNote& note) {
  std::ostringstream text;
  text << kFirstLine << "\nid " << note.id << "\nflags " << note.flags << "\nranks " << note.ranks
       << "\ndropped " << note.is_dropped << "\nname " << note.name << "\nend\n";
  return write_file(directory + "/" + kMarker, text.str());
}

std::optional<SetNote> read_note(const std::string& directory) {
  std::ifstream file(directory + "/" + kMarker);
  std::string first, id, flags, ranks, dropped, name, end;
  SetNote note;
  if (!std::getline(file, first) || first != kFirstLine) return std::nullopt;
  if (!(file >> id >> note.id >> flags >> note.flags >> ranks >> note.ranks >> dropped >>
        note.is_dropped) ||
      id != "id" || flags != "flags" || ranks != "ranks" || dropped != "dropped") {
    return std::nullopt;
  }
  std::getline(file, name);  // the rest of the line before
  if (!std::getline(file, name) || !name.starts_with("name ") || !std::getline(file, end) ||
      end != "end") {
    return std::nullopt;
  }
  note.name = name.substr(5);
  return note;
}

std::optional<SetNote> await_note(const std::string& directory,
                                  std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    auto note = read_note(directory);
    if (note || std::chrono::steady_clock::now() >= until) return note;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

void remove_set(const std::string& directory) {
  std::error_code ignored;
  fs::remove(directory + "/" + kMarker, ignored);
  fs::remove_all(directory, ignored);
}

bool is_in_pool(const std::string& path) {
  fs::path place = absolute(path);
  std::error_code ignored;
  while (place.has_relative_path() && !fs::exists(place, ignored)) place = place.parent_path();
  struct stat attributes {};
  if (::stat(place.c_str(), &attributes) != 0) return false;
  // proc(5): "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS ... - TYPE SOURCE ...".
  const std::string device = " " + std::to_string(major(attributes.st_dev)) + ":" +
                             std::to_string(minor(attributes.st_dev)) + " ";
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(device) != std::string::npos &&
        line.find(" - fuse.stdchk ") != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string make_folders_above(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  fs::create_directories(folder, error);
  return error ? failure("make the folder", folder, error.value()) : "";
}

std::string absolute(const std::string& path) {
  std::error_code ignored;
  std::string full = fs::absolute(path, ignored).lexically_normal();
  while (full.size() > 1 && full.ends_with('/')) full.pop_back();
  return full;
}

}  // namespace stdchk::shims
