#include "fork/multicast/fetcher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

namespace stdchk::multicast {
namespace {

constexpr int kFarewells = 3;

void signal_event(int fd) {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

}  // namespace

Fetcher::Fetcher(const Options& options, Socket socket, Descriptor wake, Clock& clock)
    : options_(options),
      clock_(clock),
      wake_(std::move(wake)),
      meeting_({options.group, options.from, options.own, options.image_bytes_max, options.patience,
                options.by_unicast},
               std::move(socket), clock) {}

Result<std::unique_ptr<Fetcher>> Fetcher::open(const Options& options, Clock& clock) {
  STDCHK_ASSIGN(Socket socket, Socket::open(options.own, 1));
  Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("multicast.fetch");
  std::unique_ptr<Fetcher> made(new Fetcher(options, std::move(socket), std::move(wake), clock));
  STDCHK_TRY(made->meeting_.meet());
  STDCHK_TRY(made->read_manifest());
  made->thread_ = std::thread([fetcher = made.get()] { fetcher->run(); });
  return made;
}

Fetcher::~Fetcher() {
  ends_ = true;
  signal_event(wake_.get());
  if (thread_.joinable()) thread_.join();
  Ask done;
  done.done = true;
  for (int i = 0; i < kFarewells && meeting_.sender() != 0; ++i) {
    meeting_.send(AskMessage{meeting_.sender(), done}, options_.from);
  }
}

Status Fetcher::read_manifest() {
  const Manifest& manifest = meeting_.manifest();
  own_units_ = manifest.own_units();
  image_bytes_ = manifest.image_bytes();
  demand_ = std::make_unique<Demand>(
      Demand::Options{manifest.all_units(), meeting_.offer().cells, meeting_.by_unicast()});
  for (std::uint32_t unit = 0; unit < own_units_; ++unit) demand_->want(unit);
  const Time begun = clock_.now();
  while (manifest_units_ < own_units_) {
    if (clock_.now() - begun > options_.patience) {
      return fail(Code::kDeadline, "multicast.fetch: the sender is silent");
    }
    STDCHK_TRY(turn());
  }
  if (manifest.root() == options_.root) return {};
  return fail(Code::kCorrupt, "multicast.fetch: the manifest has another root");
}

void Fetcher::run() {
  while (!ends_) {
    take_wants();
    static_cast<void>(turn());  // only an incomplete manifest gives errors
  }
}

void Fetcher::take_wants() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(wake_.get(), &count, sizeof(count));
  const MutexLock lock(mutex_);
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
}

Status Fetcher::turn() {
  const Time now = clock_.now();
  while (const auto ask = demand_->next(now)) {
    meeting_.send(AskMessage{meeting_.sender(), *ask}, options_.from);
  }
  for (const std::uint32_t unit : demand_->drop_old(now)) assembly_.erase(unit);
  STDCHK_TRY(meeting_.receive([this](const Opened& opened, const Address&, std::size_t bytes) {
    return take(opened, bytes);
  }));
  meeting_.wait(demand_->wake_at(), wake_.get());
  return {};
}

Status Fetcher::take(const Opened& opened, std::size_t datagram_bytes) {
  const auto* cell = std::get_if<Cell>(&opened.message);
  if (opened.from != meeting_.sender() || cell == nullptr) return {};
  // Before the manifest is proven, units of the image take no memory.
  if (cell->unit >= own_units_ && manifest_units_ < own_units_) return {};
  const std::uint32_t cells = meeting_.offer().cells;
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
  Manifest& manifest = meeting_.manifest();
  if (unit < own_units_) {
    // A unit may come again for other hosts. Then it cannot change what the root has proven.
    if (demand_->is_wanted(unit)) {
      manifest.set_own_unit(unit, bytes);
      ++manifest_units_;
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
  const bool came = changed_.wait_for(lock, options_.patience, all_came);
  if (came) copy(offset, out);
  for (std::uint32_t unit = first; unit <= last; ++unit) {
    if (--readers_[unit] > 0) continue;
    readers_.erase(unit);
    if (!came) ended_.push_back(unit);
    // Units that a reader has copied make room for unread units.
    if (came && kept_.erase(unit) > 0) std::erase(order_, unit);
  }
  if (!came) return fail(Code::kDeadline, "multicast.fetch: the sender is silent");
  return {};
}

}  // namespace stdchk::multicast
