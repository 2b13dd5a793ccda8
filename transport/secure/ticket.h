#pragma once

#include <optional>

#include "core/messages/messages.h"
#include "transport/secure/keyring.h"

/// Tickets on their way from the manager to the member that opens links by them.
namespace stdchk::transport::secure {

void put_ticket(const Ticket& ticket, msg::BenefactorInfo& to);
/// Nothing: there is none.
std::optional<Ticket> ticket_of(const msg::BenefactorInfo& info);

}  // namespace stdchk::transport::secure
