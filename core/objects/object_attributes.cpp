#include "core/objects/object_attributes.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace stdchk {
namespace {

constexpr std::array<std::pair<ObjectKind, std::string_view>, 5> kKinds{
    {{ObjectKind::kFile, "file"},
     {ObjectKind::kDirectory, "directory"},
     {ObjectKind::kSymlink, "symlink"},
     {ObjectKind::kFifo, "fifo"},
     {ObjectKind::kSocket, "socket"}}};
constexpr std::string_view kCrcs = "stdchk-crc32c";
constexpr std::size_t kCrcDigits = 8;

template <class Number>
bool read_number(const ObjectMetadata& metadata, const char* name, Number& out, int base = 10) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return false;
  const std::string& text = found->second;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return code == std::errc() && end == text.data() + text.size();
}

/// Reads "RANGE_BYTES:CRC CRC..." without the blanks, each CRC in 8 hexadecimal digits.
bool read_crcs(std::string_view text, ObjectAttributes& to) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return false;
  const char* const digits = text.data();
  const auto [end, code] = std::from_chars(digits, digits + colon, to.range_bytes);
  const bool is_range = code == std::errc() && end == digits + colon &&
                        to.range_bytes >= ObjectAttributes::kRangeBytesMin &&
                        to.range_bytes <= ObjectStore::kObjectBytesMax;
  text.remove_prefix(colon + 1);
  if (!is_range || text.size() % kCrcDigits != 0 ||
      text.size() / kCrcDigits > ObjectAttributes::kRangesMax) {
    return false;
  }
  for (; !text.empty(); text.remove_prefix(kCrcDigits)) {
    std::uint32_t crc = 0;
    if (std::from_chars(text.data(), text.data() + kCrcDigits, crc, 16).ptr !=
        text.data() + kCrcDigits) {
      return false;
    }
    to.crcs.push_back(crc);
  }
  return true;
}

}  // namespace

std::uint64_t ObjectAttributes::range_bytes_of(std::uint64_t size_bytes) {
  std::uint64_t range = kRangeBytesMin;
  while (size_bytes / range >= kRangesMax) range *= 2;
  return range;
}

ObjectMetadata ObjectAttributes::metadata() const {
  ObjectMetadata out;
  const auto named = std::ranges::find(kKinds, kind, &decltype(kKinds)::value_type::first);
  out["stdchk-kind"] = named->second;
  out["stdchk-mode"] = fmt::format("{:o}", mode & 07777);
  out["stdchk-uid"] = std::to_string(uid);
  out["stdchk-gid"] = std::to_string(gid);
  out["stdchk-mtime"] = std::to_string(mtime_ns);
  if (!attempt.empty()) out["stdchk-attempt"] = attempt;
  if (!crcs.empty()) {
    std::string text = fmt::format("{}:", range_bytes);
    for (const std::uint32_t crc : crcs) text += fmt::format("{:08x}", crc);
    out[std::string(kCrcs)] = text;
  }
  return out;
}

std::optional<ObjectAttributes> ObjectAttributes::parse(const ObjectMetadata& metadata) {
  const auto kind = metadata.find("stdchk-kind");
  if (kind == metadata.end()) return std::nullopt;
  const auto named = std::ranges::find(kKinds, kind->second, &decltype(kKinds)::value_type::second);
  ObjectAttributes out;
  if (named == kKinds.end() || !read_number(metadata, "stdchk-mode", out.mode, 8) ||
      !read_number(metadata, "stdchk-uid", out.uid) ||
      !read_number(metadata, "stdchk-gid", out.gid) ||
      !read_number(metadata, "stdchk-mtime", out.mtime_ns)) {
    return std::nullopt;
  }
  out.kind = named->first;
  out.mode &= 07777;
  if (const auto attempt = metadata.find("stdchk-attempt"); attempt != metadata.end()) {
    out.attempt = attempt->second;
  }
  if (const auto crcs = metadata.find(std::string(kCrcs)); crcs != metadata.end()) {
    // Damaged checksums prove nothing of the bytes.
    if (!read_crcs(crcs->second, out)) out.crcs.clear();
  }
  return out;
}

}  // namespace stdchk
