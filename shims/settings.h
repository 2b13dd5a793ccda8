#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace stdchk::shims {

// A Settings holds keys and values of a library's configuration. A value of the environment wins
// over a value that the program gives, and that over a value of the file.
//
// Threads: one.
class Settings {
 public:
  // Takes the variables of the environment that begin with `prefix`; none if it is empty.
  void take_environment(const std::string& prefix);
  // Sets a value of the program. Returns the stored value, valid until the next change of the key.
  const std::string& set(const std::string& key, const std::string& value);
  void remove(const std::string& key);
  // Reads lines KEY = VALUE. '#' and ';' begin comments, a '[' begins a line that is ignored.
  // Returns false when the file cannot be read.
  bool read_file(const std::string& path);

  std::optional<std::string> find(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  // A number that is not a number, or negative, counts as `otherwise`, and is named by malformed().
  std::int64_t number(const std::string& key, std::int64_t otherwise);
  double fraction(const std::string& key, double otherwise);

  // Returns the keys that are set and not in `known`.
  std::vector<std::string> others(const std::set<std::string>& known) const;
  const std::set<std::string>& malformed() const { return malformed_; }

 private:
  std::map<std::string, std::string> environment_, program_, file_;
  std::set<std::string> malformed_;
};

// Removes blanks at both ends.
std::string trimmed(const std::string& text);

}  // namespace stdchk::shims
