#include "transport/secure/ticket.h"

#include <algorithm>
#include <span>

#include "core/base/limits.h"

namespace stdchk::transport::secure {
namespace {

static_assert(std::tuple_size_v<Member::Id> == limits::kMemberIdBytes);
static_assert(sizeof(Secret::bytes) == limits::kKeyBytes);

std::string text_of(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void put_ticket(const Ticket& ticket, msg::BenefactorInfo& to) {
  to.member = text_of(ticket.to.id);
  to.ticket_number = ticket.number;
  to.ticket_key = text_of(ticket.key.bytes);
}

std::optional<Ticket> ticket_of(const msg::BenefactorInfo& info) {
  Ticket ticket{{Role::kBenefactor, {}}, info.ticket_number, {}};
  if (info.member.size() != ticket.to.id.size() ||
      info.ticket_key.size() != ticket.key.bytes.size()) {
    return std::nullopt;
  }
  std::ranges::copy(std::as_bytes(std::span(info.member)), ticket.to.id.begin());
  std::ranges::copy(std::as_bytes(std::span(info.ticket_key)), ticket.key.bytes.begin());
  return ticket;
}

}  // namespace stdchk::transport::secure
