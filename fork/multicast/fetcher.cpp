#include "fork/multicast/fetcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace stdchk::multicast {
namespace {

constexpr int kFarewells = 3;
/// The sender is met again when it was silent for this time while a reader waits.
constexpr auto kMeetAfter = std::chrono::seconds(2);
/// Longest time of one attempt to meet it again.
constexpr auto kMeetTime = std::chrono::milliseconds(500);
/// Pause between two attempts while no reader waits.
constexpr int kMeetPauseMs = 1000;
/// Pause after an attempt that met a sender of another image.
constexpr int kRefusedPauseMs = 10'000;

void signal_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

void clear_event(int fd) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(fd, &count, sizeof(count));
}

}  // namespace

Fetcher::Fetcher(const SourceOptions& options, Descriptor wake, Clock& clock)
    : options_(options), clock_(clock), wake_(std::move(wake)) {}

Result<std::unique_ptr<Fetcher>> Fetcher::make(const SourceOptions& options, Clock& clock) {
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("multicast.fetch");
  return std::unique_ptr<Fetcher>(new Fetcher(options, std::move(wake), clock));
}

Result<std::unique_ptr<Fetcher>> Fetcher::open(const SourceOptions& options, Clock& clock) {
  STDCHK_ASSIGN(std::unique_ptr<Fetcher> made, make(options, clock));
  STDCHK_TRY(made->meet(options.patience));
  STDCHK_TRY(made->read_manifest());
  made->contact_.is_met = true;
  made->start();
  return made;
}

Result<std::unique_ptr<Fetcher>> Fetcher::open_later(const SourceOptions& options,
                                                     std::uint64_t image_bytes, Clock& clock) {
  if (image_bytes == 0 || image_bytes > options.image_bytes_max) {
    return fail(Code::kInvalidArgument, "multicast.fetch: not the length of an image");
  }
  STDCHK_ASSIGN(std::unique_ptr<Fetcher> made, make(options, clock));
  made->set_length(image_bytes);
  made->start();
  return made;
}

void Fetcher::start() {
  thread_ = std::thread([this] { run(); });
}

void Fetcher::set_length(std::uint64_t image_bytes) {
  image_bytes_ = image_bytes;
  own_units_ = Manifest(image_bytes).own_units();
}

Fetcher::~Fetcher() {
  ends_ = true;
  signal_event(wake_.get());
  if (thread_.joinable()) thread_.join();
  Ask farewell;
  farewell.gone = true;
  for (int i = 0; i < kFarewells && meeting_ != nullptr && meeting_->sender() != 0; ++i) {
    meeting_->send(AskMessage{meeting_->sender(), farewell}, options_.from);
  }
}

/// Meets the sender, or its successor. A proven manifest stays: the root has proven it.
Status Fetcher::meet(Duration patience) {
  STDCHK_ASSIGN(Socket socket, Socket::open(options_.own, 1));
  SourceOptions options = options_;
  options.patience = patience;
  auto met = std::make_unique<Meeting>(options, std::move(socket), clock_);
  STDCHK_TRY(met->meet());
  if (image_bytes_ == 0) set_length(met->offer().image_bytes);
  if (met->offer().image_bytes != image_bytes_) {
    return fail(Code::kCorrupt, "multicast.fetch: the sender has another image");
  }
  if (contact_.is_proven) met->manifest() = std::move(meeting_->manifest());
  meeting_ = std::move(met);
  contact_.newest = 0;
  assembly_.clear();
  demand_ = std::make_unique<Demand>(Demand::Options{
      meeting_->manifest().all_units(), meeting_->offer().cells, meeting_->by_unicast()});
  return {};
}

/// Ends when nothing of the manifest has come within the patience.
Status Fetcher::read_manifest() {
  if (contact_.is_proven) return {};
  contact_.manifest_units = 0;
  for (std::uint32_t unit = 0; unit < own_units_; ++unit) demand_->want(unit);
  Time moved = clock_.now();
  while (contact_.manifest_units < own_units_) {
    const std::uint32_t before = contact_.manifest_units;
    clear_event(wake_.get());  // what readers want comes after the manifest
    STDCHK_TRY(turn());
    if (contact_.manifest_units > before) moved = clock_.now();
    if (ends_ || clock_.now() - moved > options_.patience) {
      return fail(Code::kDeadline, "multicast.fetch: the sender is silent");
    }
  }
  if (meeting_->manifest().root() != options_.root) {
    return fail(Code::kCorrupt, "multicast.fetch: the manifest has another root");
  }
  contact_.is_proven = true;
  return {};
}

void Fetcher::run() {
  while (!ends_) {
    if (take_wants()) {
      static_cast<void>(turn());  // only an incomplete manifest gives errors
    } else {
      meet_again();
    }
  }
}

void Fetcher::meet_again() {
  contact_.is_met = false;
  Status met = meet(kMeetTime);
  if (met) met = read_manifest();
  contact_.is_met = met.has_value();
  bool is_urgent = false;
  {
    const MutexLock lock(mutex_);
    if (met) {
      for (const auto& [unit, readers] : readers_) {
        if (kept_.count(unit) == 0) demand_->want(unit);
      }
      begun_.clear();
      ended_.clear();
      silence_.failed.reset();
      contact_.quiet_since = contact_.newest_at = clock_.now();
    } else if (met.error().code != Code::kDeadline) {
      silence_.failed = met.error();
    }
    is_urgent = !readers_.empty() && !silence_.failed;
  }
  changed_.notify_all();
  if (met || is_urgent) return;
  const bool is_silent = met.error().code == Code::kDeadline;
  pollfd ready{wake_.get(), POLLIN, 0};
  ::poll(&ready, 1, is_silent ? kMeetPauseMs : kRefusedPauseMs);
}

/// Returns false when the sender must be met again.
bool Fetcher::take_wants() {
  clear_event(wake_.get());
  const Time now = clock_.now();
  const MutexLock lock(mutex_);
  silence_.heard = contact_.newest_at;
  contact_.quiet_since =
      readers_.empty() ? now : std::max(contact_.quiet_since, contact_.newest_at);
  if (!contact_.is_met || silence_.failed || now - contact_.quiet_since > kMeetAfter) return false;
  for (const std::uint32_t unit : begun_) {
    if (readers_.count(unit) > 0 && kept_.count(unit) == 0) demand_->want(unit);
  }
  for (const std::uint32_t unit : ended_) {
    if (readers_.count(unit) > 0) continue;
    demand_->forget(unit);
    assembly_.erase(unit);
  }
  begun_.clear();
  ended_.clear();
  return true;
}

Status Fetcher::turn() {
  const Time now = clock_.now();
  while (const auto ask = demand_->next(now)) {
    meeting_->send(AskMessage{meeting_->sender(), *ask}, options_.from);
  }
  for (const std::uint32_t unit : demand_->drop_old(now)) assembly_.erase(unit);
  STDCHK_TRY(meeting_->receive([this](const Opened& opened, const Address&, std::size_t bytes) {
    return take(opened, bytes);
  }));
  meeting_->wait(demand_->wake_at(), wake_.get());
  return {};
}

Status Fetcher::take(const Opened& opened, std::size_t datagram_bytes) {
  if (opened.from != meeting_->sender()) return {};
  // A recorded datagram, sent again, does not show that the sender lives.
  if (opened.number > contact_.newest) {
    contact_.newest = opened.number;
    contact_.newest_at = clock_.now();
  }
  const auto* cell = std::get_if<Cell>(&opened.message);
  if (cell == nullptr) return {};
  // Before the manifest is proven, units of the image take no memory.
  if (cell->unit >= own_units_ && contact_.manifest_units < own_units_) return {};
  const std::uint32_t cells = meeting_->offer().cells;
  const std::size_t cell_bytes = (kUnitBytes + cells - 1) / cells;
  const std::size_t from = cell->cell * cell_bytes;
  if (demand_->needs(cell->unit, cell->cell)) {
    if (cell->bytes.size() != std::min(cell_bytes, kUnitBytes - from)) return {};
    auto& unit = assembly_[cell->unit];
    if (unit.empty()) unit.resize(kUnitBytes);
    std::memcpy(unit.data() + from, cell->bytes.data(), cell->bytes.size());
  }
  if (!demand_->on_cell(clock_.now(), cell->unit, cell->cell, datagram_bytes)) return {};
  const auto whole = assembly_.find(cell->unit);
  std::vector<std::byte> bytes = std::move(whole->second);
  assembly_.erase(whole);
  take_unit(cell->unit, std::move(bytes));
  return {};
}

void Fetcher::take_unit(std::uint32_t unit, std::vector<std::byte> bytes) {
  Manifest& manifest = meeting_->manifest();
  if (unit < own_units_) {
    // A unit may come again for other hosts. Then it cannot change what the root has proven.
    if (demand_->is_wanted(unit)) {
      manifest.set_own_unit(unit, bytes);
      ++contact_.manifest_units;
    }
    return demand_->accept(unit);
  }
  const std::uint32_t image_unit = unit - own_units_;
  bytes.resize(manifest.unit_bytes(image_unit));
  if (!manifest.matches(image_unit, bytes)) return demand_->reject(unit);
  demand_->accept(unit);
  {
    const MutexLock lock(mutex_);
    if (kept_.emplace(unit, std::move(bytes)).second) order_.push_back(unit);
    drop_oldest();
  }
  changed_.notify_all();
}

/// Drops kept units down to kUnitsKept. Units that a reader waits for stay.
void Fetcher::drop_oldest() {
  for (std::size_t looks = order_.size(); looks > 0 && kept_.size() > kUnitsKept; --looks) {
    const std::uint32_t unit = order_.front();
    order_.pop_front();
    if (readers_.count(unit) > 0) {
      order_.push_back(unit);
    } else {
      kept_.erase(unit);
    }
  }
}

void Fetcher::copy(std::uint64_t offset, MutableByteSpan out) const {
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t at = offset + done;
    const auto unit = static_cast<std::uint32_t>(own_units_ + at / kUnitBytes);
    const ByteSpan bytes = ByteSpan(kept_.at(unit)).subspan(at % kUnitBytes);
    const std::size_t count = std::min(bytes.size(), out.size() - done);
    std::memcpy(out.data() + done, bytes.data(), count);
    done += count;
  }
}

Status Fetcher::read(std::uint64_t offset, MutableByteSpan out) {
  if (out.empty()) return {};
  if (offset > image_bytes_ || out.size() > image_bytes_ - offset) {
    return fail(Code::kInvalidArgument, "multicast.fetch: not in the image");
  }
  const auto first = static_cast<std::uint32_t>(own_units_ + offset / kUnitBytes);
  const auto last = static_cast<std::uint32_t>(own_units_ + (offset + out.size() - 1) / kUnitBytes);
  MutexLock lock(mutex_);
  if (silence_.failed) return fail(*silence_.failed);
  const Time begun = clock_.now();
  for (std::uint32_t unit = first; unit <= last; ++unit) {
    if (++readers_[unit] == 1 && kept_.count(unit) == 0) begun_.push_back(unit);
  }
  signal_event(wake_.get());
  const auto all_came = [&]() STDCHK_REQUIRES(mutex_) {
    for (std::uint32_t unit = first; unit <= last; ++unit) {
      if (kept_.count(unit) == 0) return false;
    }
    return true;
  };
  changed_.wait_for(lock, options_.patience, [&]() STDCHK_REQUIRES(mutex_) {
    return silence_.failed.has_value() || all_came();
  });
  const bool came = all_came();
  if (came) copy(offset, out);
  const Error silent{Code::kDeadline, 0, "multicast.fetch: the sender is silent"};
  if (!came && !silence_.failed && silence_.heard < begun) {
    silence_.failed = silent;
    changed_.notify_all();
  }
  for (std::uint32_t unit = first; unit <= last; ++unit) {
    if (--readers_[unit] > 0) continue;
    readers_.erase(unit);
    if (!came) ended_.push_back(unit);
    // Units that a reader has copied make room for unread units.
    if (came && kept_.erase(unit) > 0) std::erase(order_, unit);
  }
  if (!came) return fail(silence_.failed.value_or(silent));
  return {};
}

}  // namespace stdchk::multicast
