#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "core/values/types.h"

namespace stdchk::manager {

/// A Rewriters records which images with content are being written again from nothing.
class Rewriters {
 public:
  using Set = std::tuple<FileId, std::string, std::uint64_t>;  ///< folder, application, timestep
  struct Image {
    Set set;
    std::uint64_t written = 0;  ///< commit number of the content that is being replaced
    std::uint64_t opened = 0;   ///< newest commit when the writing session was opened
  };
  void add(const Image& image) { sets_[image.set].emplace(image.written, image.opened); }
  void remove(const Image& image);
  /// Looks for a session that writes an image of `set` again whose content is newer than `begun`.
  /// Returns the newest commit when it was opened, or 0 when there is no such session.
  std::uint64_t opened(const Set& set, std::uint64_t begun) const;

 private:
  std::map<Set, std::multimap<std::uint64_t, std::uint64_t>> sets_;
};

}  // namespace stdchk::manager
