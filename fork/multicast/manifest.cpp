#include "fork/multicast/manifest.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/base/assert.h"
#include "core/chunk/naming.h"
#include "core/files/pool_files.h"

namespace stdchk::multicast {
namespace {

/// Units whose digests are computed side by side.
constexpr std::uint32_t kBatch = 64;

}  // namespace

std::optional<ChunkName> parse_root(const std::string& text) {
  ChunkName root;
  if (!parse_hex(text, root.bytes)) return std::nullopt;
  return root;
}

Manifest::Manifest(std::uint64_t image_bytes)
    : image_bytes_(image_bytes), digests_((image_bytes + kUnitBytes - 1) / kUnitBytes) {
  STDCHK_ASSERT(digests_.size() < kUnitsMax / 2);
}

Result<Manifest> Manifest::compute(
    std::uint64_t image_bytes,
    const std::function<Status(std::uint64_t offset, MutableByteSpan out)>& read) {
  Manifest manifest(image_bytes);
  std::vector<std::byte> bytes(kBatch * kUnitBytes);
  Namer namer;
  for (std::uint32_t first = 0; first < manifest.image_units(); first += kBatch) {
    const std::uint32_t count = std::min(kBatch, manifest.image_units() - first);
    const std::uint64_t offset = std::uint64_t{first} * kUnitBytes;
    const std::uint64_t end = std::min(offset + count * kUnitBytes, image_bytes);
    STDCHK_TRY(read(offset, MutableByteSpan(bytes).first(end - offset)));
    std::vector<ChunkPieces> units(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      units[i][0] = ByteSpan(bytes).subspan(i * kUnitBytes, manifest.unit_bytes(first + i));
    }
    namer.name(units, std::span(manifest.digests_).subspan(first, count));
  }
  return manifest;
}

std::uint32_t Manifest::own_units() const {
  return static_cast<std::uint32_t>((digests_.size() + kDigestsInUnit - 1) / kDigestsInUnit);
}

std::size_t Manifest::unit_bytes(std::uint32_t image_unit) const {
  return std::min<std::uint64_t>(kUnitBytes, image_bytes_ - std::uint64_t{image_unit} * kUnitBytes);
}

ChunkName Manifest::root() const {
  std::array<std::byte, sizeof(image_bytes_)> length;
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(image_bytes_ >> (8 * i));
  }
  const ChunkPieces text = {length, std::as_bytes(std::span(digests_))};
  ChunkName root;
  Namer().name({&text, 1}, {&root, 1});
  return root;
}

void Manifest::copy_own_unit(std::uint32_t unit, MutableByteSpan out) const {
  STDCHK_ASSERT(unit < own_units() && out.size() == kUnitBytes);
  const std::uint64_t first = std::uint64_t{unit} * kDigestsInUnit;
  const std::uint64_t count = std::min<std::uint64_t>(kDigestsInUnit, digests_.size() - first);
  std::fill(out.begin(), out.end(), std::byte{});
  std::memcpy(out.data(), digests_.data() + first, count * sizeof(ChunkName));
}

void Manifest::set_own_unit(std::uint32_t unit, ByteSpan bytes) {
  STDCHK_ASSERT(unit < own_units() && bytes.size() == kUnitBytes);
  const std::uint64_t first = std::uint64_t{unit} * kDigestsInUnit;
  const std::uint64_t count = std::min<std::uint64_t>(kDigestsInUnit, digests_.size() - first);
  std::memcpy(digests_.data() + first, bytes.data(), count * sizeof(ChunkName));
}

bool Manifest::matches(std::uint32_t image_unit, ByteSpan bytes) const {
  return bytes.size() == unit_bytes(image_unit) && name_chunk(bytes) == digests_[image_unit];
}

}  // namespace stdchk::multicast
