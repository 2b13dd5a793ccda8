#include "fork/pager/touch_order.h"

#include <algorithm>

namespace stdchk::pager {
namespace {

constexpr std::string_view kBeginning = "stdchk.order.1\n";

void put_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>(0x80U | (value & 0x7fU)));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}

std::optional<std::uint64_t> take_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !text.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if ((byte & 0x80U) == 0) return value;
  }
  return std::nullopt;
}

std::uint64_t zigzag(std::int64_t value) {
  const std::uint64_t doubled = static_cast<std::uint64_t>(value) << 1U;
  return value < 0 ? ~doubled : doubled;
}

std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1U) ^ -static_cast<std::int64_t>(value & 1U);
}

}  // namespace

void TouchOrder::record(const BlockRange& range) {
  if (range.count == 0 || ranges_.size() >= kRangesMax) return;
  ranges_.push_back(range);
  index(ranges_.size() - 1);
}

void TouchOrder::index(std::size_t position) {
  const std::uint64_t first = ranges_[position].first;
  const auto place =
      std::upper_bound(by_block_.begin(), by_block_.end(), first,
                       [](std::uint64_t block, const Entry& entry) { return block < entry.first; });
  by_block_.insert(place, {first, position});
}

std::vector<BlockRange> TouchOrder::following(std::uint64_t block, std::size_t count_max) const {
  const auto behind =
      std::upper_bound(by_block_.begin(), by_block_.end(), block,
                       [](std::uint64_t at, const Entry& entry) { return at < entry.first; });
  if (behind == by_block_.begin()) return {};
  const std::size_t position = std::prev(behind)->position;
  if (block >= ranges_[position].end()) return {};
  const auto from = ranges_.begin() + static_cast<std::ptrdiff_t>(position) + 1;
  const auto left = static_cast<std::size_t>(ranges_.end() - from);
  return {from, from + static_cast<std::ptrdiff_t>(std::min(left, count_max))};
}

std::string TouchOrder::encode() const {
  std::string out(kBeginning);
  std::uint64_t end = 0;
  for (const BlockRange& range : ranges_) {
    std::string one;
    put_varint(one,
               zigzag(static_cast<std::int64_t>(range.first) - static_cast<std::int64_t>(end)));
    put_varint(one, range.count);
    if (out.size() + one.size() > kBytesMax) break;
    out += one;
    end = range.end();
  }
  return out;
}

std::optional<TouchOrder> TouchOrder::decode(std::string_view text, std::uint64_t block_count) {
  if (text.size() > kBytesMax || text.substr(0, kBeginning.size()) != kBeginning) {
    return std::nullopt;
  }
  text.remove_prefix(kBeginning.size());
  TouchOrder order;
  std::uint64_t end = 0;
  while (!text.empty()) {
    const auto step = take_varint(text);
    const auto count = take_varint(text);
    if (!step || !count || order.size() >= kRangesMax) return std::nullopt;
    const std::uint64_t first = end + static_cast<std::uint64_t>(unzigzag(*step));
    if (first >= block_count || *count == 0 || *count > block_count - first) return std::nullopt;
    order.record({first, *count});
    end = first + *count;
  }
  return order;
}

}  // namespace stdchk::pager
