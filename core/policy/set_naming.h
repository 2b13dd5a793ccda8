#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/problem.h"
#include "core/policy/image_name.h"

namespace stdchk {

/// The parts of a file name that a SetNaming has read.
struct PatternName : ImageName {
  /// True for a file that belongs to no rank: the name has a word such as "base" in place of the
  /// rank. `node` is then the number of the word in the SetNaming.
  bool is_word = false;
};

/// A SetNaming is a pattern of images' names, such as "restart.{T}.{N|base}" or "{A}.{T}". The
/// field {A} stands for the application, {N} for the rank and {T} for the timestep. After a
/// "|", {N} names files of a set that are no rank's and that a whole set needs: "{N|base}". All
/// other characters stand for themselves.
///
/// Each pattern names the field {T} once, {A} and {N} once or never. Literal text separates fields.
/// Without {N} each image is a set.
class SetNaming {
 public:
  /// The form A.Ni.Tj.
  SetNaming();
  /// Precondition: check(pattern) has succeeded.
  explicit SetNaming(std::string_view pattern);

  /// Refuses a text that is no pattern.
  static Outcome<void> check(std::string_view pattern);

  std::optional<PatternName> parse(std::string_view file_name) const;
  /// Returns the name with "*" for the rank, such as "heat.*.T007": the name of the image's set,
  /// with zeros as written. Precondition: parse(file_name) has a value.
  std::string set_of(std::string_view file_name) const;
  /// Returns the beginning of the name that the same rank's images of other timesteps have, too.
  /// Precondition: parse(file_name) has a value.
  std::string_view until_timestep(std::string_view file_name) const;
  /// The words that stand for files which are no rank's.
  const std::vector<std::string>& words() const { return words_; }
  bool operator==(const SetNaming& other) const { return pattern_ == other.pattern_; }

 private:
  /// A Part is a literal text or, with `field`, one of 'A', 'N', 'T'.
  struct Part {
    char field = 0;
    std::string text;
    bool operator==(const Part&) const = default;
  };
  /// The positions of the fields in a name.
  struct Found {
    PatternName image;
    std::size_t rank_at = std::string_view::npos;
    std::size_t rank_end = 0;
    std::size_t timestep_at = 0;
  };
  std::optional<Found> find(std::string_view name) const;
  bool match(std::string_view name, std::size_t at, std::size_t part, Found& found) const;
  bool match_rank(std::string_view name, std::size_t at, std::size_t part, Found& found) const;

  std::string pattern_;
  std::vector<Part> parts_;
  std::vector<std::string> words_;
  bool is_default_ = false;
};

}  // namespace stdchk
