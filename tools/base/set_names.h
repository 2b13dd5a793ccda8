#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/messages/messages.h"
#include "core/policy/set_naming.h"

namespace stdchk::tools {

/// Returns true for a set that is a directory, or whose name is not of the form A.*.Tj.
bool is_named(const msg::ListSets::Entry& set);
/// Returns the name of the set as users write it.
std::string name_of_set(const msg::ListSets::Entry& set);

/// The application and the timestep of a set of files in one folder.
using SetKey = std::pair<std::string, std::uint64_t>;

/// A SetMember is a file of a set. A file such as "melt.100.base" has no rank, nor does any file of
/// a pattern without {N}.
struct SetMember {
  std::string name;
  std::optional<std::uint64_t> rank;
};

/// A SetIndex sorts the names of a folder's files into sets, by the pattern of the folder.
class SetIndex {
 public:
  explicit SetIndex(SetNaming naming) : naming_(std::move(naming)) {}
  /// Ignores a name that the pattern does not read.
  void add(const std::string& file_name);
  /// Returns the key of the set that users call `name`. Where the files have the names A.Ni.Tj, the
  /// name may lack the timestep's leading zeros, and may be that of an image.
  std::optional<SetKey> find(std::string_view name) const;
  /// Returns the key of the set that the file belongs to.
  std::optional<SetKey> key_of(std::string_view file_name) const;
  /// Returns the set's name, with zeros as in its first file; empty: the set has no files.
  std::string name_of(const SetKey& set) const;
  /// Returns the files of the set in the order in which they were added.
  const std::vector<SetMember>& members(const SetKey& set) const;

 private:
  struct Set {
    std::string name;
    std::vector<SetMember> members;
  };
  SetNaming naming_;
  std::map<SetKey, Set> sets_;
  std::map<std::string, SetKey, std::less<>> by_name_;
};

/// Returns true when the text of a pointer file (rule `pointer`) names the set: the text has the
/// name as a word. A text that is a number names the set whose last number has the same value:
/// "100" names "iter_0000100".
bool is_named_by(std::string_view pointer_text, std::string_view set);

}  // namespace stdchk::tools
