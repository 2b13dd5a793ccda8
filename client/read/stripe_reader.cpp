#include "client/read/stripe_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/limits.h"

namespace stdchk::client {
namespace {

constexpr const char* kWhere = "client.stripe";
static_assert(StripeReader::kPartBytes % StripeCoder::kStep == 0);

}  // namespace

/// A Part is the read of one part of one block.
struct StripeReader::Part final : Transfer {
  StripeReader* reader = nullptr;
  Lane* lane = nullptr;
  std::uint32_t block = 0;  ///< index into the lane's blocks

 protected:
  void finished(Status status) override;
};

struct StripeReader::Lane {
  bool busy = false;
  Wanted wanted;
  msg::GetStripe::Reply stripe;
  std::set<std::uint32_t> failed;     ///< indexes of blocks that cannot be read
  std::vector<std::uint32_t> chosen;  ///< indexes of the blocks that are read
  StripeCoder coder;
  std::uint32_t at = 0;
  std::size_t under_way = 0;
  bool part_failed = false;
  std::unique_ptr<Memory> memory;  ///< one part of each chosen block, then one of the result
  std::vector<std::unique_ptr<Part>> parts;

  std::size_t part_bytes() const {
    return std::min<std::size_t>(kPartBytes, wanted.chunk.length - at);
  }
  std::byte* room(std::size_t i) const { return memory->bytes().data() + i * kPartBytes; }
  std::size_t real_bytes(std::size_t i) const {
    const std::uint32_t length = stripe.blocks[chosen[i]].length;
    return length > at ? std::min<std::size_t>(length - at, part_bytes()) : 0;
  }
};

void StripeReader::Part::finished(Status status) {
  const Lock lock(reader->host_.shared.mutex);
  reader->part_done(*lane, *this, status);
}

StripeReader::StripeReader(Host host) : host_(std::move(host)) {
  for (auto& lane : lanes_) lane = std::make_unique<Lane>();
}

StripeReader::~StripeReader() = default;

void StripeReader::make(const Chunk& chunk, MutableByteSpan to, Done done) {
  waiting_.push_back({chunk, to, std::move(done)});
  start_idle();
}

void StripeReader::start_idle() {
  for (const auto& lane : lanes_) {
    if (lane->busy || waiting_.empty()) continue;
    lane->busy = true;
    lane->wanted = std::move(waiting_.front());
    waiting_.pop_front();
    ask(*lane);
  }
}

void StripeReader::ask(Lane& lane) {
  const Chunk& chunk = lane.wanted.chunk;
  host_.call(msg::GetStripe{host_.client(), chunk.copies.front(), chunk.name, chunk.length},
             [this, &lane](const rpc::Answer& answer) { asked(lane, answer); });
}

void StripeReader::asked(Lane& lane, const rpc::Answer& answer) {
  const auto* reply = answer ? std::get_if<msg::GetStripe::Reply>(&*answer) : nullptr;
  Status ready = fail(answer ? Error{Code::kMalformed, 0, kWhere} : answer.error().error);
  if (reply != nullptr) {
    lane.stripe = *reply;
    // Without the lock: this is the reactor's thread, and it registers memory here.
    ready = prepare(lane);
  }
  const Lock lock(host_.shared.mutex);
  if (!ready) return end(lane, std::move(ready));
  lane.failed.clear();
  if (const Status chosen = choose(lane); !chosen) return end(lane, chosen);
  read_part(lane);
}

Status StripeReader::prepare(Lane& lane) {
  const msg::GetStripe::Reply& stripe = lane.stripe;
  if (stripe.data == 0) return fail(Code::kNotFound, kWhere);
  if (stripe.data > limits::kStripeDataMax || stripe.number >= limits::kStripeMembersMax) {
    return fail(Code::kMalformed, kWhere);
  }
  for (const auto& block : stripe.blocks) {
    if (block.number >= limits::kStripeMembersMax || block.length > limits::kChunkBytesMax) {
      return fail(Code::kMalformed, kWhere);
    }
  }
  const std::size_t bytes = (stripe.data + 1) * kPartBytes;
  if (lane.memory != nullptr && lane.memory->bytes().size() >= bytes) return {};
  lane.memory.reset();
  STDCHK_ASSIGN(lane.memory, Memory::create(bytes, host_.endpoints));
  return {};
}

/// Chooses the first blocks that have not failed, as many as the stripe has data blocks.
Status StripeReader::choose(Lane& lane) {
  const msg::GetStripe::Reply& stripe = lane.stripe;
  lane.chosen.clear();
  std::vector<std::uint8_t> have;
  for (std::uint32_t i = 0; i < stripe.blocks.size() && have.size() < stripe.data; ++i) {
    if (lane.failed.count(i) > 0) continue;
    lane.chosen.push_back(i);
    have.push_back(static_cast<std::uint8_t>(stripe.blocks[i].number));
  }
  if (have.size() < stripe.data) return fail(Code::kDataLost, kWhere);
  STDCHK_ASSIGN(lane.coder, StripeCoder::create(stripe.data, stripe.parity, std::move(have),
                                                {static_cast<std::uint8_t>(stripe.number)}));
  lane.at = 0;
  return {};
}

void StripeReader::read_part(Lane& lane) {
  lane.parts.clear();
  lane.part_failed = false;
  for (std::uint32_t i = 0; i < lane.chosen.size(); ++i) {
    const std::size_t bytes = lane.real_bytes(i);
    if (bytes == 0) continue;
    auto part = std::make_unique<Part>();
    part->reader = this;
    part->lane = &lane;
    part->block = lane.chosen[i];
    part->at = lane.stripe.blocks[part->block].at;
    part->skip = limits::kExtentHeaderBytes + lane.at;
    part->memory = lane.memory.get();
    part->pieces = {MutableByteSpan(lane.room(i), bytes), {}};
    lane.parts.push_back(std::move(part));
  }
  lane.under_way = lane.parts.size();
  if (lane.under_way == 0) return compute(lane);
  for (const auto& part : lane.parts) host_.submit(*part);
}

void StripeReader::part_done(Lane& lane, const Part& part, const Status& status) {
  if (!status.has_value()) {
    lane.failed.insert(part.block);
    lane.part_failed = true;
  }
  if (--lane.under_way > 0) return;
  if (!lane.part_failed) return compute(lane);
  // Later, not here: choosing anew destroys the transfer whose callback this is.
  host_.run_later([this, &lane] {
    const Lock lock(host_.shared.mutex);
    if (const Status chosen = choose(lane); !chosen) return end(lane, chosen);
    read_part(lane);
  });
}

void StripeReader::compute(Lane& lane) {
  host_.run_later([this, &lane] {
    const std::size_t part = lane.part_bytes();
    const std::size_t steps = StripeCoder::whole_steps(part);
    std::vector<std::byte*> have;
    for (std::size_t i = 0; i < lane.chosen.size(); ++i) {
      const std::size_t real = lane.real_bytes(i);
      std::memset(lane.room(i) + real, 0, steps - real);
      have.push_back(lane.room(i));
    }
    std::byte* const made = lane.room(lane.chosen.size());
    lane.coder.run(have, {&made, 1}, steps);
    std::memcpy(lane.wanted.to.data() + lane.at, made, part);
    const Lock lock(host_.shared.mutex);
    lane.at += static_cast<std::uint32_t>(part);
    if (lane.at < lane.wanted.chunk.length) return read_part(lane);
    end(lane, {});
  });
}

void StripeReader::end(Lane& lane, Status status) {
  const Done done = std::exchange(lane.wanted, {}).done;
  lane.busy = false;
  start_idle();
  done(std::move(status));
}

}  // namespace stdchk::client
