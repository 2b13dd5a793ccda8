#include "transport/secure/keyring.h"

#include <algorithm>

#include "core/base/assert.h"

namespace stdchk::transport::secure {
namespace {

constexpr std::size_t kNumberAt = 8;
constexpr std::size_t kFromAt = 16;
constexpr std::size_t kToAt = 32;
constexpr unsigned kByteBits = 8;

bool is_role(std::byte byte) {
  const auto number = std::to_integer<std::uint8_t>(byte);
  return number >= static_cast<std::uint8_t>(Role::kClient) &&
         number <= static_cast<std::uint8_t>(kLastRole);
}

MemberKey member_key(const Secret& root, const Member& member) {
  std::array<std::byte, 1 + std::tuple_size_v<Member::Id>> context{};
  context[0] = static_cast<std::byte>(member.role);
  std::ranges::copy(member.id, context.begin() + 1);
  return {member, derive(root, "member key", context)};
}

Secret key_to_manager(const Secret& connecting, const LinkName& name) {
  return derive(connecting, "key to the manager", name.encode());
}

Secret key_to_member(const Secret& accepting, const LinkName& name) {
  return derive(accepting, "key between members", name.encode());
}

/// Low byte first.
std::array<std::byte, sizeof(std::uint64_t)> bytes_of(std::uint64_t number) {
  std::array<std::byte, sizeof number> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(number >> (kByteBits * i));
  }
  return bytes;
}

std::uint64_t number_at(ByteSpan bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number |= std::to_integer<std::uint64_t>(bytes[i]) << (kByteBits * i);
  }
  return number;
}

std::uint64_t number_of(const Secret& secret) { return number_at(secret.bytes); }

/// Clients write and read a benefactor's memory; benefactors copy from each other. Coordinators and
/// nodes have nothing to say to the members that store images.
bool may_connect(Role from, Role to) {
  if (from == Role::kCoordinator || to == Role::kNode) {
    return from == Role::kCoordinator && to == Role::kNode;
  }
  if (from == Role::kNode || to == Role::kCoordinator) return false;
  if (to == Role::kManager) return true;
  return to == Role::kBenefactor && from != Role::kManager;
}

}  // namespace

Member new_member(Role role) {
  Member member{role, {}};
  fill_random(member.id);
  return member;
}

LinkName::Bytes LinkName::encode() const {
  Bytes bytes{};
  bytes[0] = static_cast<std::byte>(from.role);
  bytes[1] = static_cast<std::byte>(to.role);
  std::ranges::copy(bytes_of(number), bytes.begin() + kNumberAt);
  std::ranges::copy(from.id, bytes.begin() + kFromAt);
  std::ranges::copy(to.id, bytes.begin() + kToAt);
  return bytes;
}

std::optional<LinkName> LinkName::decode(ByteSpan bytes) {
  if (bytes.size() != kBytes || !is_role(bytes[0]) || !is_role(bytes[1])) return std::nullopt;
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::ranges::all_of(bytes.subspan(2, kNumberAt - 2), is_zero)) return std::nullopt;
  LinkName name;
  name.from.role = static_cast<Role>(bytes[0]);
  name.to.role = static_cast<Role>(bytes[1]);
  name.number = number_at(bytes.subspan(kNumberAt));
  std::ranges::copy(bytes.subspan(kFromAt, name.from.id.size()), name.from.id.begin());
  std::ranges::copy(bytes.subspan(kToAt, name.to.id.size()), name.to.id.begin());
  return name;
}

Keyring Keyring::of_root(const Secret& root, const Member& self) {
  return {root, member_key(root, self)};
}

Keyring Keyring::of_member(const MemberKey& own) { return {std::nullopt, own}; }

Credential Keyring::to_manager() const {
  const LinkName name{own_.member, kAnyManager, 0};
  return {name, key_to_manager(own_.key, name)};
}

Credential Keyring::by(const Ticket& ticket) const {
  return {{own_.member, ticket.to, ticket.number}, ticket.key};
}

std::optional<Secret> Keyring::accept(const LinkName& name) const {
  if (!may_connect(name.from.role, name.to.role) || name.from == own_.member) return std::nullopt;
  if (own_.member.role == Role::kManager) {
    if (!root_ || name.to != kAnyManager || name.number != 0) return std::nullopt;
    return key_to_manager(member_key(*root_, name.from).key, name);
  }
  if (name.to != own_.member || name.number == 0 || name.number < oldest_number_)
    return std::nullopt;
  return key_to_member(own_.key, name);
}

void Keyring::refuse_before(std::uint64_t number) {
  oldest_number_ = std::max(oldest_number_, number);
}

Secret Keyring::own(std::string_view use, ByteSpan context) const {
  return derive(derive(own_.key, "own", {}), use, context);
}

Secret Keyring::own_of(const Member& member, std::string_view use, ByteSpan context) const {
  return derive(derive(key_of(member).key, "own", {}), use, context);
}

std::uint64_t Keyring::mark(std::uint64_t number) const {
  return number_of(own("mark", bytes_of(number)));
}

std::uint64_t Keyring::mark_of(const Member& member, std::uint64_t number) const {
  return number_of(own_of(member, "mark", bytes_of(number)));
}

Secret Keyring::of_managers(std::string_view use, ByteSpan context) const {
  STDCHK_ASSERT(root_.has_value());
  return derive(derive(*root_, "of managers", {}), use, context);
}

MemberKey Keyring::key_of(const Member& member) const {
  STDCHK_ASSERT(root_.has_value());
  return member_key(*root_, member);
}

Ticket Keyring::ticket(const Member& from, const Member& to, std::uint64_t number) const {
  STDCHK_ASSERT(root_.has_value());
  const LinkName name{from, to, number};
  return {to, number, key_to_member(member_key(*root_, to).key, name)};
}

}  // namespace stdchk::transport::secure
