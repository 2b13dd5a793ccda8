#include "transport/secure/key_file.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "core/files/pool_files.h"

namespace stdchk::transport::secure {
namespace {

constexpr std::string_view kFirstWord = "stdchk-member";
constexpr std::size_t kBytesMax = 256;
constexpr std::array kRoles{Role::kClient, Role::kBenefactor, Role::kManager, Role::kCoordinator,
                            Role::kNode};

std::optional<Role> role_named(std::string_view name) {
  for (const Role role : kRoles) {
    if (name == name_of(role)) return role;
  }
  return std::nullopt;
}

/// Parses the text of a member's key file. Returns nothing when the text is damaged.
std::optional<MemberKey> parse_key(const std::string& text) {
  std::istringstream words(text);
  std::string first, role, id, key, more;
  words >> first >> role >> id >> key;
  const auto known = role_named(role);
  MemberKey out;
  // Managers and coordinators use the root secret, so no key file has their roles.
  if (first != kFirstWord || !known || *known == Role::kManager || *known == Role::kCoordinator ||
      (words >> more) || !parse_hex(id, out.member.id) || !parse_hex(key, out.key.bytes)) {
    return std::nullopt;
  }
  out.member.role = *known;
  return out;
}

}  // namespace

const char* name_of(Role role) {
  constexpr std::array<const char*, kRoles.size()> kNames{"client", "benefactor", "manager",
                                                          "coordinator", "node"};
  return kNames[static_cast<std::size_t>(role) - 1];
}

std::string key_file_text(const MemberKey& key) {
  return fmt::format("{} {} {} {}\n", kFirstWord, name_of(key.member.role), hex_text(key.member.id),
                     hex_text(key.key.bytes));
}

Outcome<std::shared_ptr<Keyring>> read_keyring(const std::string& path, Role role) {
  auto text = read_private_file(path, kBytesMax);
  if (!text) return problem(std::move(text.error()));
  if (!text->starts_with(kFirstWord)) {
    const auto root = parse_secret(path, *text);
    if (!root) return problem(root.error());
    return std::make_shared<Keyring>(Keyring::of_root(*root, new_member(role)));
  }
  const auto key = parse_key(*text);
  if (!key) {
    return problem(
        fmt::format("the key file {} is damaged; `stdchk member-key` makes a new one", path));
  }
  if (key->member.role != role) {
    return problem(fmt::format(
        "the key file {} is for a {}, and this process is a {}; `stdchk member-key --role {}` "
        "makes a key for it",
        path, name_of(key->member.role), name_of(role), name_of(role)));
  }
  return std::make_shared<Keyring>(Keyring::of_member(*key));
}

Outcome<std::shared_ptr<Keyring>> read_root_keyring(const std::string& path, const Member& self) {
  auto text = read_private_file(path, kBytesMax);
  if (!text) return problem(std::move(text.error()));
  if (text->starts_with(kFirstWord)) {
    return problem(fmt::format(
        "the key file {} holds the key of one member, but this command needs the pool's secret. "
        "Use the file `secret` that `stdchk up` has left in the pool's state directory",
        path));
  }
  const auto root = parse_secret(path, *text);
  if (!root) return problem(root.error());
  return std::make_shared<Keyring>(Keyring::of_root(*root, self));
}

}  // namespace stdchk::transport::secure
