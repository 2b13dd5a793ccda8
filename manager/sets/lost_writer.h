#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stdchk::manager {

/// A LostWriter is a writer that ended without a commit in a directory which is a set. The
/// directory keeps it as an extended attribute, so that a restarted manager knows it, too.
///
/// The directory is not whole if its marker was committed while the writer had its file open. Then
/// the program wrote the marker before that file was stored.
struct LostWriter {
  static constexpr const char* kXattr = "user.stdchk.set.lost_writer";

  std::uint64_t opened = 0;  ///< sequence of the newest commit when the file was opened
  std::uint64_t ended = 0;   ///< sequence of the newest commit when the writer ended

  std::string text() const { return fmt::format("{} {}", opened, ended); }
  static std::optional<LostWriter> parse(std::string_view text) {
    LostWriter out;
    const char* const end = text.data() + text.size();
    const auto first = std::from_chars(text.data(), end, out.opened);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
    const auto second = std::from_chars(first.ptr + 1, end, out.ended);
    if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
    return out;
  }
  /// Returns one record for two writers of a directory.
  LostWriter joined(const LostWriter& other) const {
    return {std::min(opened, other.opened), std::max(ended, other.ended)};
  }
  bool had_open_at(std::uint64_t marker) const { return opened < marker && marker <= ended; }
};

}  // namespace stdchk::manager
