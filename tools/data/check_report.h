#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stdchk::tools {

/// A Faults lists the files that a command found missing or damaged. It prints
/// each fault at once for people, and keeps all faults for programs.
class Faults {
 public:
  explicit Faults(bool as_json) : as_json_(as_json) {}
  void add(const std::string& path, const std::string& fault);

  std::size_t count() const { return list_.size(); }
  const nlohmann::json& list() const { return list_; }
  /// kExitNo with any fault.
  int exit_status() const;

 private:
  const bool as_json_;
  nlohmann::json list_ = nlohmann::json::array();
};

/// The result of the comparison of one file, or object, with its checksums.
struct FileCheck {
  std::string path;
  std::string fault;      ///< empty: its bytes are those that were drained
  bool unlisted = false;  ///< nothing is known of it
  std::uint64_t checked_bytes = 0;
  std::uint64_t unknown_bytes = 0;  ///< without a checksum
};

/// The words of a report: files and objects have different ones.
struct CheckWords {
  std::string unlisted;      ///< follows the path of a file of which nothing is known
  std::string without;       ///< names the bytes without a checksum
  std::string unlisted_sum;  ///< follows the number of such files
};

/// Prints the results. Returns the exit status.
int report_checks(const std::vector<FileCheck>& all, const CheckWords& words, bool as_json);

}  // namespace stdchk::tools
