#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace stdchk {

/// The extended attributes that hold POSIX access lists: the list that holds for a file, and the
/// list that new files of a directory get. Their values have Linux's format
/// (linux/posix_acl_xattr.h).
inline constexpr std::string_view kXattrAccessList = "system.posix_acl_access";
inline constexpr std::string_view kXattrDefaultList = "system.posix_acl_default";
inline bool is_access_list(std::string_view xattr) {
  return xattr == kXattrAccessList || xattr == kXattrDefaultList;
}

/// Returns `mode` with other permission bits (nine), such as those of a list.
inline std::uint32_t with_permissions(std::uint32_t mode, std::uint32_t permissions) {
  constexpr std::uint32_t kPermissions = 0777;
  return (mode & ~kPermissions) | permissions;
}

/// An AccessList says who may do what with a file (acl(5)). It has an entry for the file's owner,
/// its group and all others, as the permission bits of a mode. Further entries name users and
/// groups; then an entry `mask` limits these and the group's.
///
/// Limits: kEntriesMax entries. The kernel takes no longer list from a mount.
/// Not: the check of a caller's rights. The kernel of each mount does this.
class AccessList {
 public:
  static constexpr std::size_t kEntriesMax = 511;  ///< a page of 4 KiB

  /// Reads an attribute's value. Errors: kInvalidArgument, when the value is no valid list.
  static Result<AccessList> parse(std::string_view value);
  /// The attribute's value.
  std::string value() const;

  /// Returns true when the list says no more than a mode: nobody stores it.
  bool is_minimal() const;
  /// The nine permission bits of the file's mode. The mask, if there is one, gives the group's bits.
  std::uint32_t mode() const;
  /// Does to the list what chmod(2) does. Other bits of `mode` do not count.
  void set_mode(std::uint32_t mode);
  /// Makes of a directory's default list the list of a new file, which was to be made with `mode`.
  /// The umask does not count. Returns the mode of the file.
  std::uint32_t inherit(std::uint32_t mode);
  /// Returns permission bits for a place that keeps no list, such as the drain directory. Named users
  /// count as members of the group, or as others, there. No user gains rights.
  std::uint32_t mode_without_names() const;

 private:
  /// Kinds of entries. A list has its entries in this order.
  enum class Tag : std::uint16_t {
    kOwner = 0x01,
    kUser = 0x02,
    kOwningGroup = 0x04,
    kGroup = 0x08,
    kMask = 0x10,
    kOthers = 0x20,
  };
  struct Entry {
    Tag tag{};
    std::uint16_t rights = 0;
    std::uint32_t id = 0;
  };

  static bool is_valid(const std::vector<Entry>& entries);
  std::uint16_t& rights(Tag tag);
  std::uint16_t rights(Tag tag) const;
  /// The entry that the group's bits of the mode show.
  Tag group_shown() const;
  bool has(Tag tag) const;

  std::vector<Entry> entries_;
};

}  // namespace stdchk
