#include "client/names/name_batches.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <variant>

namespace stdchk::client {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRepeatPause = 300ms;
/// A change without its names takes fewer bytes.
constexpr std::size_t kChangeBytes = 160;

std::size_t bytes_of(const msg::NameChange& change) {
  return kChangeBytes + change.name.size() + change.to_name.size() + change.target.size();
}

/// Returns true when the manager has refused the batch. After other errors the batch is sent again.
bool is_refusal(Code code) {
  return code == Code::kStale || code == Code::kRefused || code == Code::kUnsupported ||
         code == Code::kInvalidArgument || code == Code::kMalformed;
}

}  // namespace

void NameBatches::granted(const msg::LeaseDirectory::Reply& reply, bool first) {
  if (first && in_flight_.empty() && changes_.empty()) {
    holder_ = reply.holder;
    number_ = reply.newest_batch;
  }
  manager_time_ = {std::max(now_ns(), reply.wall_ns), host_.clock.now()};
  numbers_.give(reply.first_number, reply.number_count);
}

std::int64_t NameBatches::now_ns() const {
  const auto& [wall_ns, known_at] = manager_time_;
  return wall_ns == 0 ? 0 : wall_ns + (host_.clock.now() - known_at).count();
}

void NameBatches::add(msg::NameChange change) {
  const std::size_t bytes = bytes_of(change);
  if (bytes_ + bytes > kBytesMax) send();
  if (changes_.empty()) oldest_ = host_.clock.now();
  changes_.push_back(std::move(change));
  bytes_ += bytes;
  ++unsynced_;
  if (changes_.size() >= kChangesMax) return send();
  if (timer_set_) return;
  // When the reactor's queue is full, tick() sends the batch.
  timer_set_ = host_.run_after(kAgeMax, [this] {
    const Lock lock(host_.shared.mutex);
    timer_set_ = false;
    send();
  });
}

bool NameBatches::is_full() const {
  if (unsynced_ >= kUnsyncedMax) return true;
  return !in_flight_.empty() && host_.clock.now() >= in_flight_.front().sent_at + kUnsyncedAgeMax;
}

void NameBatches::send(bool also_nothing) {
  if (changes_.empty() && !also_nothing) return;
  if (holder_ == 0) return;
  Batch batch;
  batch.count = ++sent_;
  batch.sent_at = host_.clock.now();
  batch.request.holder = holder_;
  batch.request.number = ++number_;
  batch.request.changes = std::exchange(changes_, {});
  if (!numbers_asked_) batch.request.numbers = numbers_.wanted();
  numbers_asked_ = numbers_asked_ || batch.request.numbers != 0;
  bytes_ = 0;
  in_flight_.push_back(std::move(batch));
  if (repeat_ != Repeat::kDue) post(in_flight_.back());
}

void NameBatches::post(Batch& batch) {
  batch.asked = true;
  host_.call(
      batch.request,
      [this, count = batch.count](const rpc::Answer& answer) {
        const Lock lock(host_.shared.mutex);
        answered(count, answer);
      },
      [this] { return repeat_ != Repeat::kDue; });
}

void NameBatches::answered(std::uint64_t count, const rpc::Answer& answer) {
  const auto batch = std::ranges::find(in_flight_, count, &Batch::count);
  if (batch == in_flight_.end()) return;  // the leases have ended since
  batch->asked = false;
  if (answer.has_value()) {
    const auto* reply = std::get_if<msg::ApplyNames::Reply>(&*answer);
    if (reply != nullptr) numbers_.give(reply->first_number, reply->number_count);
    if (batch->request.numbers != 0) numbers_asked_ = false;
    unsynced_ -= batch->request.changes.size();
    in_flight_.erase(batch);
    if (in_flight_.empty()) repeat_ = Repeat::kNone;
    return host_.moved();
  }
  if (is_refusal(answer.error().error.code)) return lose();
  repeat_ = Repeat::kDue;
  repeat_at_ = host_.clock.now() + kRepeatPause;
}

void NameBatches::tick() {
  const Time now = host_.clock.now();
  if (!changes_.empty() && now >= oldest_ + kAgeMax) send();
  if (repeat_ != Repeat::kDue || now < repeat_at_) return;
  // Calls that were not sent yet wait in the link until their deadlines.
  if (std::ranges::any_of(in_flight_, &Batch::asked)) return;
  repeat_ = Repeat::kSent;
  for (Batch& batch : in_flight_) post(batch);
}

void NameBatches::lose() {
  Changes lost;
  for (Batch& batch : in_flight_)
    std::ranges::move(batch.request.changes, std::back_inserter(lost));
  std::ranges::move(changes_, std::back_inserter(lost));
  in_flight_.clear();
  changes_.clear();
  bytes_ = unsynced_ = 0;
  holder_ = number_ = 0;
  numbers_.clear();
  numbers_asked_ = false;
  repeat_ = Repeat::kNone;
  host_.lost(std::move(lost));
}

}  // namespace stdchk::client
