#include "tools/cast/cast_receiver.h"

#include <algorithm>
#include <utility>

#include "core/base/clock.h"
#include "core/base/host_address.h"
#include "core/base/limits.h"
#include "core/base/zero_bytes.h"
#include "fork/multicast/cast.h"
#include "tools/cast/cast_offer.h"

namespace stdchk::tools {
namespace {

/// A sender that is silent for this time has ended: the pool has the rest.
constexpr auto kPatience = std::chrono::seconds(2);
constexpr std::uint64_t kReadBytes = limits::kMiB;

/// The error of a copy, for the multicast, which stops. complete() reports the reason again.
Status to_status(const Outcome<void>& done) {
  return done ? Status() : fail(Code::kSystem, "multicast.copy");
}

}  // namespace

CastReceiver::CastReceiver(Bundle bundle, std::vector<LocalFile> copies)
    : bundle_(std::move(bundle)),
      copies_(std::move(copies)),
      is_here_((bundle_.bytes() + multicast::kUnitBytes - 1) / multicast::kUnitBytes) {}

Outcome<CastReceiver> CastReceiver::make(client::Filesystem& filesystem, const LocalFolder& to,
                                         std::vector<BundleImage> images) {
  auto bundle = Bundle::open(filesystem, std::move(images));
  if (!bundle) return problem(bundle.error());
  std::vector<LocalFile> copies;
  for (const BundleImage& image : bundle->images()) {
    auto copy = to.create(image.name);
    if (!copy) return problem(copy.error());
    if (auto sized = copy->set_size(image.size_bytes); !sized) return problem(sized.error());
    copies.push_back(std::move(*copy));
  }
  return CastReceiver(std::move(*bundle), std::move(copies));
}

void CastReceiver::receive(client::Filesystem& filesystem, const std::string& offer_name) {
  const auto offer = find_offer(filesystem, offer_name);
  // An image that was committed meanwhile has another version: then the layouts differ.
  if (!offer || offer->layout != bundle_.layout()) return;
  const auto own = own_address_to(offer->sender.host);
  if (!own) return;
  multicast::ReceiveOptions options;
  options.group = multicast::group_secret(offer->secret);
  options.from = offer->sender;
  options.own = {*own, 0};
  options.root = offer->root;
  options.image_bytes_max = bundle_.bytes();
  options.patience = kPatience;
  options.begin = [this](std::uint64_t bytes) {
    return bytes == bundle_.bytes() ? Status() : fail(Code::kStale, "multicast.layout");
  };
  options.write = [this](std::uint64_t at, ByteSpan bytes) { return write(at, bytes); };
  options.read = [this](std::uint64_t at, MutableByteSpan out) { return read(at, out); };
  SystemClock clock;
  static_cast<void>(multicast::receive(options, clock));
}

Status CastReceiver::write(std::uint64_t at, ByteSpan bytes) {
  for (const Bundle::Part& part : bundle_.parts(at, bytes.size())) {
    const ByteSpan piece = bytes.subspan(part.at - at, part.length);
    if (is_zero(piece)) continue;
    STDCHK_TRY(to_status(copies_[part.image].write(part.offset, piece)));
  }
  is_here_[at / multicast::kUnitBytes] = true;
  return {};
}

Status CastReceiver::read(std::uint64_t at, MutableByteSpan out) const {
  for (const Bundle::Part& part : bundle_.parts(at, out.size())) {
    const MutableByteSpan piece = out.subspan(part.at - at, part.length);
    STDCHK_TRY(to_status(copies_[part.image].read(part.offset, piece)));
  }
  return {};
}

Outcome<void> CastReceiver::read_from_pool(const Bundle::Part& part) {
  std::vector<std::byte> bytes(part.length);
  if (auto done = bundle_.read(part.at, bytes); !done) {
    return failed(bundle_.images()[part.image].name, done.error());
  }
  if (is_zero(bytes)) return {};
  return copies_[part.image].write(part.offset, bytes);
}

Outcome<void> CastReceiver::complete(std::size_t image) {
  for (const Bundle::Part& part : bundle_.parts_of(image)) {
    const std::uint64_t end = part.at + part.length;
    for (std::uint64_t at = part.at; at < end;) {
      // Reads the next missing bytes: up to a unit that came, at most kReadBytes.
      std::uint64_t unit = at / multicast::kUnitBytes;
      if (is_here_[unit]) {
        at = (unit + 1) * multicast::kUnitBytes;
        continue;
      }
      std::uint64_t to = at;
      while (to < end && to - at < kReadBytes && !is_here_[unit]) {
        to = std::min(++unit * multicast::kUnitBytes, end);
      }
      auto done = read_from_pool({image, part.offset + (at - part.at), at, to - at});
      if (!done) return done;
      at = to;
    }
  }
  // Only this user needs the copy. A script of a checkpoint stays executable.
  return copies_[image].finish((bundle_.images()[image].mode & 0700U) | 0600U);
}

}  // namespace stdchk::tools
