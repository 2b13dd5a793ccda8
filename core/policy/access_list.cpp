#include "core/policy/access_list.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk {
namespace {

constexpr std::size_t kHeadBytes = 4;   // the version
constexpr std::size_t kEntryBytes = 8;  // tag, rights, id
constexpr std::uint32_t kVersion = 2;
constexpr std::uint32_t kNobody = 0xffffffff;  // the id of an entry that names nobody
constexpr std::uint16_t kRightsAll = 7;
constexpr unsigned kOwnerShift = 6;
constexpr unsigned kGroupShift = 3;

/// Reads a little-endian number.
std::uint32_t number(std::string_view bytes) {
  std::uint32_t out = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) out = out << 8 | static_cast<std::uint8_t>(bytes[i]);
  return out;
}

void append(std::string& out, std::uint32_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i++)
    out.push_back(static_cast<char>(number >> (8 * i) & 0xff));
}

std::uint16_t three_bits(std::uint32_t mode, unsigned shift) {
  return static_cast<std::uint16_t>(mode >> shift & kRightsAll);
}

}  // namespace

Result<AccessList> AccessList::parse(std::string_view value) {
  const auto invalid = fail(Code::kInvalidArgument, "access list");
  if (value.size() < kHeadBytes || number(value.substr(0, kHeadBytes)) != kVersion) return invalid;
  value.remove_prefix(kHeadBytes);
  if (value.size() % kEntryBytes != 0 || value.size() > kEntriesMax * kEntryBytes) return invalid;
  AccessList list;
  for (; !value.empty(); value.remove_prefix(kEntryBytes)) {
    list.entries_.push_back({static_cast<Tag>(number(value.substr(0, 2))),
                             static_cast<std::uint16_t>(number(value.substr(2, 2))),
                             number(value.substr(4, 4))});
  }
  if (!is_valid(list.entries_)) return invalid;
  return list;
}

/// Checks the rules of posix_acl_valid() in the kernel. Each kind without an id has one entry, in
/// order. A list that names users or groups needs a mask.
bool AccessList::is_valid(const std::vector<Entry>& entries) {
  std::uint16_t seen = 0;  // the tags, as bits
  for (const Entry& entry : entries) {
    const auto tag = static_cast<std::uint16_t>(entry.tag);
    switch (entry.tag) {
      case Tag::kUser:
      case Tag::kGroup:
        if (entry.id == kNobody || tag < (seen & ~tag)) return false;
        break;
      case Tag::kOwner:
      case Tag::kOwningGroup:
      case Tag::kMask:
      case Tag::kOthers:
        if (tag <= seen) return false;
        break;
      default:
        return false;
    }
    if (entry.rights > kRightsAll) return false;
    seen |= tag;
  }
  constexpr auto kNeeded = static_cast<std::uint16_t>(Tag::kOwner) |
                           static_cast<std::uint16_t>(Tag::kOwningGroup) |
                           static_cast<std::uint16_t>(Tag::kOthers);
  constexpr auto kNamed =
      static_cast<std::uint16_t>(Tag::kUser) | static_cast<std::uint16_t>(Tag::kGroup);
  const bool has_mask = (seen & static_cast<std::uint16_t>(Tag::kMask)) != 0;
  return (seen & kNeeded) == kNeeded && (has_mask || (seen & kNamed) == 0);
}

std::string AccessList::value() const {
  std::string out;
  append(out, kVersion, kHeadBytes);
  for (const Entry& entry : entries_) {
    append(out, static_cast<std::uint16_t>(entry.tag), 2);
    append(out, entry.rights, 2);
    const bool names = entry.tag == Tag::kUser || entry.tag == Tag::kGroup;
    append(out, names ? entry.id : kNobody, 4);
  }
  return out;
}

bool AccessList::has(Tag tag) const {
  return std::ranges::any_of(entries_, [&](const Entry& entry) { return entry.tag == tag; });
}

std::uint16_t& AccessList::rights(Tag tag) {
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.tag == tag; });
  STDCHK_ASSERT(found != entries_.end());
  return found->rights;
}

std::uint16_t AccessList::rights(Tag tag) const {
  return const_cast<AccessList*>(this)->rights(tag);  // NOLINT: the same search
}

AccessList::Tag AccessList::group_shown() const {
  return has(Tag::kMask) ? Tag::kMask : Tag::kOwningGroup;
}

bool AccessList::is_minimal() const { return entries_.size() == 3; }

std::uint32_t AccessList::mode() const {
  const auto bits = [this](Tag tag) { return std::uint32_t{rights(tag)}; };
  return bits(Tag::kOwner) << kOwnerShift | bits(group_shown()) << kGroupShift | bits(Tag::kOthers);
}

void AccessList::set_mode(std::uint32_t mode) {
  rights(Tag::kOwner) = three_bits(mode, kOwnerShift);
  rights(group_shown()) = three_bits(mode, kGroupShift);
  rights(Tag::kOthers) = three_bits(mode, 0);
}

std::uint32_t AccessList::inherit(std::uint32_t mode) {
  set_mode(this->mode() & mode);
  return with_permissions(mode, this->mode());
}

std::uint32_t AccessList::mode_without_names() const {
  const std::uint32_t mask = rights(group_shown());
  std::uint32_t group = rights(Tag::kOwningGroup) & mask;
  std::uint32_t others = rights(Tag::kOthers);
  for (const Entry& entry : entries_) {
    // Rights add up for a member of the owning group and a named group.
    if (entry.tag == Tag::kUser) group &= entry.rights;
    if (entry.tag == Tag::kUser || entry.tag == Tag::kGroup) others &= entry.rights & mask;
  }
  return std::uint32_t{rights(Tag::kOwner)} << kOwnerShift | group << kGroupShift | others;
}

}  // namespace stdchk
