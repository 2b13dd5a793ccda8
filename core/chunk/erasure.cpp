#include "core/chunk/erasure.h"

#include <isa-l/erasure_code.h>
#include <isa-l/raid.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/assert.h"
#include "core/base/limits.h"

namespace stdchk {
namespace {

constexpr const char* kWhere = "erasure.create";
constexpr std::size_t kTableBytes = 32;  // of ISA-L, for each coefficient
using Matrix = std::vector<std::uint8_t>;

/// 2^exponent.
std::uint8_t power_of_two(std::uint32_t exponent) {
  std::uint8_t out = 1;
  for (; exponent > 0; --exponent) out = gf_mul(out, 2);
  return out;
}

/// Returns the factor of data block `column` in block `number`.
std::uint8_t coefficient(std::uint32_t data, std::uint32_t parity, std::uint32_t number,
                         std::uint32_t column) {
  if (number < data) return number == column ? 1 : 0;
  if (parity > 2) return gf_inv(static_cast<std::uint8_t>(number ^ column));
  return number == data ? 1 : power_of_two(column);
}

bool all_different(std::vector<std::uint8_t> numbers, std::uint32_t below) {
  std::sort(numbers.begin(), numbers.end());
  return std::adjacent_find(numbers.begin(), numbers.end()) == numbers.end() &&
         (numbers.empty() || numbers.back() < below);
}

}  // namespace

Result<StripeCoder> StripeCoder::create(std::uint32_t data, std::uint32_t parity,
                                        std::vector<std::uint8_t> have,
                                        std::vector<std::uint8_t> wanted) {
  const std::uint32_t all = data + parity;
  if (data < 1 || data > limits::kStripeDataMax || parity < 1 ||
      parity > limits::kStripeParityMax || have.size() != data || wanted.empty() ||
      !all_different(have, all) || !all_different(wanted, all)) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  StripeCoder out;
  out.have_ = data;
  out.wanted_ = static_cast<std::uint32_t>(wanted.size());
  // With one data block and at most two parity blocks, all blocks are equal.
  const bool of_data = std::all_of(have.begin(), have.end(), [&](auto one) { return one < data; });
  const bool sorted = std::is_sorted(have.begin(), have.end());
  if (data == 1 && parity <= 2) {
    out.way_ = Way::kCopy;
    return out;
  }
  // Each data block, like P, is the XOR of the other data blocks and P.
  const auto among_sum = [&](std::uint8_t number) { return number <= data; };
  if (wanted.size() == 1 && parity <= 2 && among_sum(wanted[0]) &&
      std::all_of(have.begin(), have.end(), among_sum)) {
    out.way_ = Way::kXor;
    return out;
  }
  if (parity == 2 && of_data && sorted && wanted.size() == 2 && wanted[0] == data &&
      wanted[1] == data + 1) {
    out.way_ = Way::kPQ;
    return out;
  }
  Matrix rows(std::size_t{data} * data);
  for (std::uint32_t i = 0; i < data; ++i) {
    for (std::uint32_t j = 0; j < data; ++j) {
      rows[i * data + j] = coefficient(data, parity, have[i], j);
    }
  }
  Matrix inverse(rows.size());
  if (gf_invert_matrix(rows.data(), inverse.data(), static_cast<int>(data)) != 0) {
    return fail(Code::kInvalidArgument, kWhere);
  }
  Matrix factors(wanted.size() * data);
  for (std::size_t w = 0; w < wanted.size(); ++w) {
    for (std::uint32_t i = 0; i < data; ++i) {
      std::uint8_t sum = 0;
      for (std::uint32_t j = 0; j < data; ++j) {
        sum = static_cast<std::uint8_t>(
            sum ^ gf_mul(coefficient(data, parity, wanted[w], j), inverse[j * data + i]));
      }
      factors[w * data + i] = sum;
    }
  }
  out.tables_.resize(kTableBytes * factors.size());
  ec_init_tables(static_cast<int>(data), static_cast<int>(wanted.size()), factors.data(),
                 out.tables_.data());
  return out;
}

void StripeCoder::run(std::span<std::byte* const> have, std::span<std::byte* const> wanted,
                      std::size_t bytes) const {
  STDCHK_ASSERT(have.size() == have_ && wanted.size() == wanted_ && bytes % kStep == 0);
  if (bytes == 0) return;
  if (way_ == Way::kCopy) {
    for (std::byte* const to : wanted) std::memcpy(to, have[0], bytes);
    return;
  }
  std::array<void*, limits::kStripeMembersMax> blocks{};
  std::copy(wanted.begin(), wanted.end(), std::copy(have.begin(), have.end(), blocks.begin()));
  const int length = static_cast<int>(bytes);
  if (way_ == Way::kTables) {
    auto** const from = reinterpret_cast<unsigned char**>(blocks.data());
    ec_encode_data(length, static_cast<int>(have_), static_cast<int>(wanted_),
                   const_cast<unsigned char*>(tables_.data()), from, from + have_);
    return;
  }
  const int count = static_cast<int>(have_ + wanted_);
  const int failed = way_ == Way::kXor ? xor_gen(count, length, blocks.data())
                                       : pq_gen(count, length, blocks.data());
  STDCHK_ASSERT(failed == 0);
}

}  // namespace stdchk
