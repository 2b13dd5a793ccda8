#include "transport/secure/grant_proof.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

namespace stdchk::transport::secure {
namespace {

constexpr unsigned kByteBits = 8;
constexpr std::size_t kWordBytes = sizeof(std::uint64_t);

std::uint64_t word_at(ByteSpan bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < kWordBytes; ++i) {
    word |= std::to_integer<std::uint64_t>(bytes[i]) << (kByteBits * i);
  }
  return word;
}

/// The two words of the MAC.
std::pair<std::uint64_t, std::uint64_t> mac_of(const Secret& key, ClientId client,
                                               const Grant& grant) {
  const std::array numbers{client.value, grant.benefactor.value, grant.id.value, grant.offset,
                           grant.length};
  std::array<std::byte, numbers.size() * kWordBytes> text{};
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = static_cast<std::byte>(numbers[i / kWordBytes] >> (kByteBits * (i % kWordBytes)));
  }
  const Digest digest = keyed_digest(key, {text});
  return {word_at(digest), word_at(ByteSpan(digest).subspan(kWordBytes))};
}

}  // namespace

void prove(const Secret& key, ClientId client, Grant& grant) {
  std::tie(grant.proof_low, grant.proof_high) = mac_of(key, client, grant);
}

bool is_proven(const Secret& key, ClientId client, const Grant& grant) {
  const auto [low, high] = mac_of(key, client, grant);
  return ((low ^ grant.proof_low) | (high ^ grant.proof_high)) == 0;
}

}  // namespace stdchk::transport::secure
