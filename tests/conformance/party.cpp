#include "tests/conformance/party.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "core/base/assert.h"

namespace stdchk::conformance {

void fill_pattern(MutableByteSpan out, std::uint64_t seed) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = pattern_byte(seed, i);
}

std::int64_t first_mismatch(ByteSpan bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != pattern_byte(seed, i)) return static_cast<std::int64_t>(i);
  }
  return -1;
}

void Transfer::complete(Status status) {
  ++completions;
  if (inside_start) completed_inside_start = true;
  code = status.has_value() ? Code{} : status.error().code;
  if (then) then();
}

// The hooks may destroy the link, but not the Contact.
void Contact::on_connected(transport::Link&) {
  if (closed > 0) called_after_close = true;
  ++connected;
  if (when_connected) when_connected();
}

void Contact::on_message(transport::Link&, ByteSpan message) {
  if (closed > 0) called_after_close = true;
  ++messages;
  if (when_message && when_message(message)) return;
  inbox.emplace_back(message.begin(), message.end());
}

void Contact::on_closed(transport::Link&, Error why) {
  if (closed > 0) called_after_close = true;
  ++closed;
  close_code = why.code;
  if (when_closed) when_closed();
}

Result<std::unique_ptr<Party>> Party::open(const Subject& subject) {
  std::unique_ptr<Party> party(new Party);
  STDCHK_ASSIGN(party->endpoint_, subject.open(party->clock_));
  void* memory = ::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  STDCHK_ASSERT(memory != MAP_FAILED);
  party->memory_ = {static_cast<std::byte*>(memory), kMemoryBytes};
  STDCHK_ASSIGN(party->region_, party->endpoint_->register_memory(party->memory_));
  party->reactor_.add(*party->endpoint_);
  return party;
}

Party::~Party() {
  contacts_.clear();
  region_.reset();
  if (endpoint_ != nullptr) reactor_.remove(*endpoint_);
  endpoint_.reset();
  if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

Status Party::listen() { return endpoint_->listen(*this); }

void Party::on_accept(std::unique_ptr<transport::Link> link) {
  ++accepted_;
  auto contact = std::make_unique<Contact>();
  contact->link = std::move(link);
  contact->link->set_handler(*contact);
  contacts_.push_back(std::move(contact));
  if (when_accepted) when_accepted(*contacts_.back());
}

transport::RemoteKey Party::share_with_newest() {
  if (contacts_.empty() || contacts_.back()->link == nullptr) return {};
  return contacts_.back()->link->share(*region_);
}

Contact* Party::connect(const std::string& address, Duration deadline) {
  auto contact = std::make_unique<Contact>();
  auto link = endpoint_->connect(address, *contact, deadline);
  if (!link.has_value()) return nullptr;
  contact->link = std::move(*link);
  contacts_.push_back(std::move(contact));
  return contacts_.back().get();
}

transport::LocalPiece Party::piece(std::size_t offset, std::size_t length) {
  STDCHK_ASSERT(offset + length <= memory_.size());
  return {memory_.data() + offset, length, region_.get()};
}

Status Party::write(Contact& contact, std::span<const transport::LocalPiece> pieces,
                    const transport::RemoteKey& key, std::uint64_t offset, Transfer& transfer) {
  transfer.inside_start = true;
  const Status status = contact.link->write(pieces, key, offset, transfer);
  transfer.inside_start = false;
  return status;
}

Status Party::read(Contact& contact, std::span<const transport::LocalPiece> pieces,
                   const transport::RemoteKey& key, std::uint64_t offset, Transfer& transfer) {
  transfer.inside_start = true;
  const Status status = contact.link->read(pieces, key, offset, transfer);
  transfer.inside_start = false;
  return status;
}

bool Party::run_until(const std::function<bool()>& done, Duration timeout) {
  const Time give_up = clock_.now() + patience() * timeout;
  while (!done()) {
    if (clock_.now() >= give_up) return false;
    reactor_.run_once(std::chrono::milliseconds(5));
  }
  return true;
}

void Party::run_for(Duration time) {
  const Time end = clock_.now() + time;
  while (clock_.now() < end) reactor_.run_once(std::chrono::milliseconds(5));
}

unsigned patience() {
  static const unsigned factor = [] {
    const char* const text = std::getenv("STDCHK_TEST_PATIENCE");
    return text == nullptr ? 1U : std::max(1U, static_cast<unsigned>(std::atoi(text)));
  }();
  return factor;
}

}  // namespace stdchk::conformance
