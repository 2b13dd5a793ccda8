#include "fork/pager/registry.h"

#include <algorithm>

#include "core/base/mutex.h"

namespace stdchk::pager {

std::uint64_t Registry::new_id() {
  const WriterLock lock(mutex_);
  return ++last_id_;
}

void Registry::used_id(std::uint64_t id) {
  const WriterLock lock(mutex_);
  last_id_ = std::max(last_id_, id);
}

Registry::ImagePtr Registry::image(const std::string& key) const {
  const ReaderLock lock(mutex_);
  const auto found = images_.find(key);
  return found == images_.end() ? nullptr : found->second;
}

Registry::ImagePtr Registry::image(std::uint64_t id) const {
  const ReaderLock lock(mutex_);
  for (const auto& [key, image] : images_) {
    if (image->id() == id) return image;
  }
  return nullptr;
}

Registry::ImagePtr Registry::add_image(const std::string& key, const ImagePtr& image) {
  const WriterLock lock(mutex_);
  return images_.try_emplace(key, image).first->second;
}

std::vector<Registry::ImagePtr> Registry::images() const {
  const ReaderLock lock(mutex_);
  std::vector<ImagePtr> all;
  for (const auto& [key, image] : images_) all.push_back(image);
  return all;
}

std::vector<Registry::ImagePtr> Registry::take_unused() {
  const WriterLock lock(mutex_);
  std::vector<ImagePtr> unused;
  for (auto each = images_.begin(); each != images_.end();) {
    // A thread that opens an image holds a reference before the image has a clone.
    const bool used = mapped_.count(each->second->id()) > 0 || each->second.use_count() > 1 ||
                      each->second->present_bytes() > 0;
    if (!used) unused.push_back(each->second);
    each = used ? std::next(each) : images_.erase(each);
  }
  return unused;
}

Registry::ClonePtr Registry::clone(std::uint64_t id) const {
  const ReaderLock lock(mutex_);
  const auto found = clones_.find(id);
  return found == clones_.end() ? nullptr : found->second;
}

void Registry::add_clone(const ClonePtr& clone) {
  const WriterLock lock(mutex_);
  clones_[clone->id()] = clone;
  ++mapped_[clone->image()->id()];
}

Registry::ClonePtr Registry::take_clone(std::uint64_t id) {
  const WriterLock lock(mutex_);
  const auto found = clones_.find(id);
  if (found == clones_.end()) return nullptr;
  ClonePtr clone = std::move(found->second);
  clones_.erase(found);
  const auto count = mapped_.find(clone->image()->id());
  if (--count->second == 0) mapped_.erase(count);
  return clone;
}

std::vector<Registry::ClonePtr> Registry::clones() const {
  const ReaderLock lock(mutex_);
  std::vector<ClonePtr> all;
  for (const auto& [id, clone] : clones_) all.push_back(clone);
  return all;
}

bool Registry::is_mapped(const Image& image) const {
  const ReaderLock lock(mutex_);
  return mapped_.count(image.id()) > 0;
}

std::size_t Registry::image_count() const {
  const ReaderLock lock(mutex_);
  return images_.size();
}

std::size_t Registry::clone_count() const {
  const ReaderLock lock(mutex_);
  return clones_.size();
}

}  // namespace stdchk::pager
