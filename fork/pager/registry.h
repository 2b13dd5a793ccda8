#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/mutex.h"
#include "fork/pager/clone.h"
#include "fork/pager/image.h"

namespace stdchk::pager {

/// A Registry finds images and clones.
///
/// Owns: a reference to each. Threads: any.
class Registry {
 public:
  using ImagePtr = std::shared_ptr<Image>;
  using ClonePtr = std::shared_ptr<Clone>;

  /// Returns a new number. Images and clones of earlier servers do not have it either.
  std::uint64_t new_id();
  void used_id(std::uint64_t id);

  ImagePtr image(const std::string& key) const;
  ImagePtr image(std::uint64_t id) const;
  /// Returns the image that has the key afterwards: another thread may have been first.
  ImagePtr add_image(const std::string& key, const ImagePtr& image);
  std::vector<ImagePtr> images() const;
  /// Removes images without clones and without memory. Returns them.
  std::vector<ImagePtr> take_unused();

  ClonePtr clone(std::uint64_t id) const;
  void add_clone(const ClonePtr& clone);
  /// Returns nullptr when it is not there.
  ClonePtr take_clone(std::uint64_t id);
  std::vector<ClonePtr> clones() const;

  bool is_mapped(const Image& image) const;
  std::size_t image_count() const;
  std::size_t clone_count() const;

 private:
  mutable SharedMutex mutex_;
  std::uint64_t last_id_ STDCHK_GUARDED_BY(mutex_) = 0;
  std::map<std::string, ImagePtr> images_ STDCHK_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, ClonePtr> clones_ STDCHK_GUARDED_BY(mutex_);
  /// The number of clones, by the image's id.
  std::unordered_map<std::uint64_t, std::uint64_t> mapped_ STDCHK_GUARDED_BY(mutex_);
};

}  // namespace stdchk::pager
