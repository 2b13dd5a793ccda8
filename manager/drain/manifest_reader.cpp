#include "manager/drain/manifest_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/limits.h"
#include "core/base/log.h"

namespace stdchk::manager {
namespace {

using Json = nlohmann::json;

// The depth of values in a manifest: {"files":{NAME:{"pieces":[{"offset":
constexpr int kManifest = 1;
constexpr int kFiles = 2;
constexpr int kFile = 3;
constexpr int kPieces = 4;
constexpr int kPiece = 5;

/// A ManifestParser receives a manifest value by value. With its chunk names the manifest may be a
/// thousand times as large as what is kept of it.
///
/// Not: a validator. An unexpected value only makes its entry unknown.
class ManifestParser final : public nlohmann::json_sax<Json> {
 public:
  explicit ManifestParser(ManifestReader::Clock::time_point until) : until_(until) {}
  ManifestEntries take() { return std::move(entries_); }

  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return true; }
  bool string(std::string& /*value*/) override { return true; }
  bool binary(Json::binary_t& /*value*/) override { return true; }
  bool number_integer(std::int64_t value) override {
    if (depth_ == kFile && field_ == "mtime") mtime_ns_ = value;
    return true;
  }
  bool number_unsigned(std::uint64_t value) override {
    if (depth_ == kFile && field_ == "size") size_ = value;
    if (depth_ == kFile && field_ == "mtime" && std::in_range<std::int64_t>(value)) {
      mtime_ns_ = static_cast<std::int64_t>(value);
    }
    if (depth_ != kPiece || !in_pieces_) return true;
    if (field_ == "offset") offset_ = value;
    if (field_ == "length") length_ = value;
    if (field_ == "crc32c") crc_ = value;
    return true;
  }
  bool start_object(std::size_t /*elements*/) override { return enter(); }
  bool start_array(std::size_t /*elements*/) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    // When a name occurs twice, the last one counts, as for other readers of manifests.
    if (depth_ == kManifest && (in_files_ = name == "files")) entries_.clear();
    if (depth_ == kFiles) file_name_ = name_of_key(name).value_or("");
    if (depth_ == kFiles && in_files_) entries_.erase(file_name_);
    if (depth_ == kFile || depth_ == kPiece) field_ = name;
    if (depth_ == kFile && name == "size") size_.reset();
    if (depth_ == kFile && name == "mtime") mtime_ns_.reset();
    if (depth_ == kFile && name == "pieces") begin_pieces();
    if (depth_ == kPiece && name == "offset") offset_.reset();
    if (depth_ == kPiece && name == "length") length_.reset();
    if (depth_ == kPiece && name == "crc32c") crc_.reset();
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const Json::exception& /*why*/) override {
    return false;
  }

 private:
  bool enter() {
    ++depth_;
    if (depth_ == kFile) {
      size_.reset();
      mtime_ns_.reset();
      begin_pieces();
    }
    if (depth_ == kPieces) in_pieces_ = field_ == "pieces";
    if (depth_ == kPiece) {
      offset_.reset();
      length_.reset();
      crc_.reset();
    }
    return true;
  }

  bool leave() {
    if (ManifestReader::Clock::now() >= until_) return false;
    if (in_files_ && depth_ == kFile) end_file();
    if (in_files_ && in_pieces_ && depth_ == kPiece) end_piece();
    if (depth_ == kPieces) in_pieces_ = false;
    --depth_;
    return true;
  }

  void begin_pieces() {
    ranges_.clear();
    good_ = true;
  }

  void end_piece() {
    good_ = good_ && offset_ && length_ && crc_ && *length_ > 0 &&
            *length_ <= limits::kChunkBytesMax && *offset_ <= limits::kFileBytesMax &&
            std::in_range<std::uint32_t>(*crc_);
    if (!good_) return;
    ranges_.push_back(
        {*offset_, static_cast<std::uint32_t>(*length_), static_cast<std::uint32_t>(*crc_)});
  }

  void end_file() {
    const std::string name = std::exchange(file_name_, {});
    std::ranges::sort(ranges_, {}, &DrainedRange::offset);
    std::uint64_t end = 0;
    for (const DrainedRange& range : ranges_) {
      good_ = good_ && range.offset >= end;
      end = range.offset + range.length;
    }
    if (name.empty() || !good_ || !size_ || !mtime_ns_ || end > *size_) return;
    entries_[name] = {*size_, *mtime_ns_, joined(ranges_)};
  }

  const ManifestReader::Clock::time_point until_;
  ManifestEntries entries_;
  int depth_ = 0;
  bool in_files_ = false;
  bool in_pieces_ = false;
  std::string file_name_;
  std::string field_;
  bool good_ = false;  ///< all pieces of this file are valid
  std::optional<std::uint64_t> size_;
  std::optional<std::int64_t> mtime_ns_;
  std::vector<DrainedRange> ranges_;
  std::optional<std::uint64_t> offset_;
  std::optional<std::uint64_t> length_;
  std::optional<std::uint64_t> crc_;
};

/// A ManifestBytes gives the bytes of a manifest to the parser, as far as there is time. It limits
/// the time and the length of a name, because a hostile user may write an endless manifest or name.
///
/// Not: a general iterator. Only comparisons with the end are allowed.
class ManifestBytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  ManifestBytes() = default;  ///< the end
  ManifestBytes(int fd, ManifestReader::Clock::time_point until)
      : state_(std::make_shared<State>(fd, until)) {
    fill();
  }
  char operator*() const { return state_->block[state_->at]; }
  ManifestBytes& operator++() {
    State& state = *state_;
    const char mark = state.block[state.at];
    const bool is_mark = std::string_view("\"{}[],:").find(mark) != std::string_view::npos;
    state.since_mark = is_mark ? 0 : state.since_mark + 1;
    ++state.at;
    if (state.since_mark > kBetweenMarksMax) state_.reset();
    if (state_ && state.at == state.block.size()) fill();
    return *this;
  }
  bool operator==(const ManifestBytes& other) const { return state_ == other.state_; }
  bool operator!=(const ManifestBytes& other) const { return state_ != other.state_; }

 private:
  static constexpr std::size_t kBlockBytes = 64 * limits::kKiB;
  static constexpr std::size_t kBetweenMarksMax = 64 * limits::kKiB;
  struct State {
    State(int descriptor, ManifestReader::Clock::time_point last) : fd(descriptor), until(last) {}
    const int fd;
    const ManifestReader::Clock::time_point until;
    std::string block;
    std::size_t at = 0;
    std::size_t since_mark = 0;
  };
  void fill() {
    State& state = *state_;
    state.block.resize(kBlockBytes);
    ssize_t count = -1;
    if (ManifestReader::Clock::now() < state.until) {
      do count = ::read(state.fd, state.block.data(), state.block.size());
      while (count < 0 && errno == EINTR);
    }
    if (count <= 0) return state_.reset();
    state.block.resize(static_cast<std::size_t>(count));
    state.at = 0;
  }

  std::shared_ptr<State> state_;
};

}  // namespace

ManifestEntries ManifestReader::read(const DrainFolder& folder, const std::string& path) {
  const auto file = open_manifest(folder, Access::kRead);
  if (!file && file.error().error.os_errno == ENOENT) return {};
  if (!file) {
    log::warning(
        "the manifest of {} is not read, so what is read of the files there is not "
        "checked: {}",
        path, file.error().text);
    return {};
  }
  ManifestParser parser(until_);
  if (Json::sax_parse(ManifestBytes(file->file.get(), until_), ManifestBytes(), &parser)) {
    return parser.take();
  }
  if (Clock::now() < until_) {
    log::warning("{}/{} is damaged: what is read of the files beside it is not checked", path,
                 kManifestName);
    return {};
  }
  ++unread_;
  return parser.take();
}

}  // namespace stdchk::manager
