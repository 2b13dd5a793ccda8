#include "transport/tcp/transfer_table.h"

#include <algorithm>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::transport::tcp {
namespace {

constexpr std::uint64_t kPlaceMask = 0xFF;
constexpr unsigned kPlaceBits = 8;
static_assert(kTransfersMax <= kPlaceMask + 1);

}  // namespace

Transfer* TransferTable::start(bool is_write, const Pieces& pieces, Operation& operation) {
  Transfer* const transfer = free_place();
  if (transfer == nullptr) return nullptr;
  const auto place = static_cast<std::uint64_t>(transfer - places_.data());
  *transfer = {.operation = &operation,
               .is_write = is_write,
               .id = ++started_count_ << kPlaceBits | place,
               .started = clock_.now(),
               .pieces = pieces};
  ++count_;
  ++endpoint_count_;
  operation.started();
  return transfer;
}

Transfer* TransferTable::free_place() {
  if (count_ >= kTransfersMax) return nullptr;
  // Reserved once, so that no Transfer moves.
  if (places_.capacity() == 0) places_.reserve(kTransfersMax);
  if (count_ == places_.size()) return &places_.emplace_back();
  const auto is_free = [](const Transfer& each) { return each.operation == nullptr; };
  return &*std::ranges::find_if(places_, is_free);
}

Transfer* TransferTable::find(std::uint64_t id, bool is_write) {
  const std::size_t place = id & kPlaceMask;
  if (place >= places_.size()) return nullptr;
  Transfer& transfer = places_[place];
  const bool in_flight = transfer.operation != nullptr && transfer.id == id;
  return in_flight && transfer.is_write == is_write ? &transfer : nullptr;
}

void TransferTable::finish(Transfer& transfer, Status status) {
  Operation* const operation = std::exchange(transfer.operation, nullptr);
  --count_;
  --endpoint_count_;
  operation->finish(status);
}

bool TransferTable::finish_all(const Error& why) {
  const Lifetime::Watch alive = lifetime_.watch();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    if (places_[i].operation == nullptr) continue;
    finish(places_[i], fail(why));
    if (alive.expired()) return false;
  }
  return true;
}

void TransferTable::part_sent(std::uint64_t write) {
  part_moved();
  Transfer* const transfer = write == 0 ? nullptr : find(write, true);
  if (transfer != nullptr) transfer->sent = true;
}

bool TransferTable::has_overdue(Time now) const {
  return count_ > 0 && std::ranges::any_of(places_, [&](const Transfer& each) {
           return each.operation != nullptr &&
                  now - std::max(each.started, moved_) >= limits::kRmaDeadline;
         });
}

}  // namespace stdchk::transport::tcp
