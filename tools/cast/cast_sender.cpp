#include "tools/cast/cast_sender.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <utility>

#include "core/base/clock.h"
#include "core/base/host_address.h"
#include "core/base/limits.h"
#include "core/base/units.h"
#include "tools/base/connection.h"
#include "tools/base/process.h"

namespace stdchk::tools {
namespace {

/// Fewer bytes are read from the pool before a sender is ready.
constexpr std::uint64_t kBytesMin = 8 * limits::kMiB;
constexpr std::size_t kNodesMin = 3;
/// The sender reads the images in blocks. Receivers ask again for lost bytes, so it keeps the last
/// blocks.
constexpr std::size_t kBlockBytes = limits::kMiB;
constexpr std::size_t kBlocksMax = 32;
/// A random group of 239.255.0.0/16 (RFC 2365, section 6.1): casts at the same time differ.
constexpr std::uint32_t kGroups = 0xefff0000;
constexpr std::uint16_t kGroupPort = 7100;

/// A BlockReader reads a Bundle in blocks, and keeps the last ones. Threads: one.
class BlockReader {
 public:
  explicit BlockReader(const Bundle& bundle) : bundle_(bundle) {}

  Status read(std::uint64_t at, MutableByteSpan out) {
    while (!out.empty()) {
      const std::uint64_t begin = at / kBlockBytes * kBlockBytes;
      STDCHK_ASSIGN(const ByteSpan block, block_at(begin));
      const ByteSpan from = block.subspan(at - begin);
      const std::size_t count = std::min(from.size(), out.size());
      if (count == 0) return fail(Code::kInvalidArgument, "bundle.read");
      std::ranges::copy(from.first(count), out.begin());
      at += count;
      out = out.subspan(count);
    }
    return {};
  }

 private:
  struct Block {
    std::uint64_t begin = 0;
    std::vector<std::byte> bytes;
  };

  Result<ByteSpan> block_at(std::uint64_t begin) {
    const auto found = std::ranges::find(blocks_, begin, &Block::begin);
    if (found != blocks_.end()) return ByteSpan(found->bytes);
    // A read of a large image takes longer than a person waits after a signal.
    if (asked_to_end()) return fail(Code::kCancelled, "bundle.read");
    Block block{begin, std::vector<std::byte>(
                           std::min<std::uint64_t>(kBlockBytes, bundle_.bytes() - begin))};
    STDCHK_TRY(bundle_.read(begin, block.bytes));
    if (blocks_.size() == kBlocksMax) blocks_.pop_front();
    blocks_.push_back(std::move(block));
    return ByteSpan(blocks_.back().bytes);
  }

  const Bundle& bundle_;
  std::deque<Block> blocks_;
};

}  // namespace

Outcome<std::unique_ptr<CastSender>> CastSender::start(const PoolRecord& pool,
                                                       std::vector<BundleImage> images,
                                                       std::size_t nodes, Duration longest) {
  if (images.size() > kImagesMax) {
    return problem("{} images are more than the {} that are sent at once", images.size(),
                   kImagesMax);
  }
  const std::string manager = host_of_manager(pool.manager_address);
  const auto own = own_address_to(manager);
  if (!own) return problem("this host has no IPv4 address to reach the manager ({})", manager);
  auto filesystem = connect(pool, limits::kWindowBytesDefault);
  if (!filesystem) return problem(filesystem.error());
  auto bundle = Bundle::open(**filesystem, std::move(images));
  if (!bundle) return problem(bundle.error());
  if (bundle->bytes() == 0 || bundle->bytes() > multicast::kImageBytesMax) {
    return problem("the images have {} of data", format_bytes(bundle->bytes()));
  }
  BlockReader reader(*bundle);
  auto manifest = multicast::Manifest::compute(
      bundle->bytes(), [&](std::uint64_t at, MutableByteSpan out) { return reader.read(at, out); });
  if (!manifest) return failed("the images", manifest.error());
  std::unique_ptr<CastSender> made(
      new CastSender(std::move(*filesystem), std::move(*bundle), std::move(*manifest)));
  if (auto running = made->run(*own, nodes, longest); !running) return problem(running.error());
  return made;
}

Outcome<void> CastSender::run(std::uint32_t own_host, std::size_t nodes, Duration longest) {
  CastOffer offer;
  fill_random(offer.secret.bytes);
  std::array<std::byte, 2> group{};
  fill_random(group);
  options_.group = multicast::group_secret(offer.secret);
  options_.own = {own_host, 0};
  options_.to = {kGroups | std::to_integer<std::uint32_t>(group[0]) << 8U |
                     std::to_integer<std::uint32_t>(group[1]),
                 kGroupPort};
  options_.expected =
      static_cast<std::uint32_t>(std::min<std::size_t>(nodes, multicast::Sender::kReceiversMax));
  options_.idle = std::chrono::hours(24);  // end() ends it
  options_.leaves_laggards = true;
  const auto until = std::chrono::steady_clock::now() + longest;
  options_.is_over = [this, until] {
    return is_over_.load() || asked_to_end() || std::chrono::steady_clock::now() > until;
  };
  auto ready = std::make_shared<std::promise<std::optional<multicast::Address>>>();
  auto address = ready->get_future();
  thread_ = std::thread([this, ready] {
    BlockReader reader(bundle_);
    bool is_ready = false;
    options_.read = [&](std::uint64_t at, MutableByteSpan out) { return reader.read(at, out); };
    options_.on_ready = [&](const multicast::Address& at) {
      is_ready = true;
      ready->set_value(at);
    };
    SystemClock clock;
    const auto report = multicast::send(options_, manifest_, clock);
    if (report) complete_ = report->complete;
    if (!is_ready) ready->set_value(std::nullopt);
  });
  const auto at = address.get();
  if (!at) return problem("no socket for the sender");
  offer.sender = *at;
  offer.root = manifest_.root();
  offer.layout = bundle_.layout();
  auto published = PublishedOffer::make(*filesystem_, offer);
  if (!published) return problem(published.error());
  offer_ = std::move(*published);
  name_ = offer_->name();
  return {};
}

CastSender::~CastSender() { static_cast<void>(end()); }

std::size_t CastSender::end() {
  is_over_ = true;
  if (thread_.joinable()) thread_.join();
  offer_.reset();
  return complete_;
}

bool is_worth_a_cast(client::Filesystem& filesystem, std::uint64_t bytes, std::size_t nodes) {
  if (nodes < kNodesMin || bytes < kBytesMin) return false;
  const auto benefactors = filesystem.benefactors();
  if (!benefactors) return false;
  const auto alive = static_cast<std::size_t>(
      std::ranges::count(*benefactors, msg::BenefactorState::kAlive, &msg::BenefactorInfo::state));
  // A sender reads the images once and sends them once. Nodes that read by themselves get the
  // whole images over the links of all benefactors.
  return nodes > 2 * alive;
}

}  // namespace stdchk::tools
