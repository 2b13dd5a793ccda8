#include "tools/cast/bundle.h"

#include <algorithm>
#include <span>

#include "core/chunk/naming.h"

namespace stdchk::tools {

Outcome<Bundle> Bundle::open(client::Filesystem& filesystem, std::vector<BundleImage> images) {
  Bundle bundle;
  bundle.images_ = std::move(images);
  for (std::size_t i = 0; i < bundle.images_.size(); ++i) {
    const BundleImage& image = bundle.images_[i];
    client::OpenFlags flags;
    flags.read = true;
    auto file = filesystem.open(image.id, flags);
    if (!file) return failed(image.name, file.error());
    if ((*file)->attributes().size_bytes != image.size_bytes) {
      return problem("{} has another size now", image.name);
    }
    for (std::uint64_t offset = 0; offset < image.size_bytes;) {
      const auto data = (*file)->seek(offset, client::Seek::kData);
      if (!data) return failed(image.name, data.error());
      if (!*data || **data >= image.size_bytes) break;
      const auto hole = (*file)->seek(**data, client::Seek::kHole);
      if (!hole) return failed(image.name, hole.error());
      offset = std::min(hole->value_or(image.size_bytes), image.size_bytes);
      bundle.parts_.push_back({i, **data, bundle.bytes_, offset - **data});
      bundle.bytes_ += offset - **data;
    }
    bundle.files_.push_back(std::move(*file));
  }
  return bundle;
}

ChunkName Bundle::layout() const {
  std::string text;
  for (std::size_t i = 0; i < images_.size(); ++i) {
    text += fmt::format("{} {} {} {}\n", images_[i].name.size(), images_[i].name,
                        files_[i]->attributes().version, images_[i].size_bytes);
  }
  for (const Part& part : parts_) {
    text += fmt::format("{} {} {}\n", part.image, part.offset, part.length);
  }
  return name_chunk(std::as_bytes(std::span(text)));
}

std::vector<Bundle::Part> Bundle::parts(std::uint64_t at, std::uint64_t length) const {
  std::vector<Part> out;
  const std::uint64_t end = at + length;
  auto part = std::ranges::partition_point(
      parts_, [&](const Part& one) { return one.at + one.length <= at; });
  for (; part != parts_.end() && part->at < end; ++part) {
    const std::uint64_t from = std::max(part->at, at);
    const std::uint64_t to = std::min(part->at + part->length, end);
    out.push_back({part->image, part->offset + (from - part->at), from, to - from});
  }
  return out;
}

std::vector<Bundle::Part> Bundle::parts_of(std::size_t image) const {
  std::vector<Part> out;
  std::ranges::copy_if(parts_, std::back_inserter(out),
                       [&](const Part& part) { return part.image == image; });
  return out;
}

Status Bundle::read(std::uint64_t at, MutableByteSpan out) const {
  for (const Part& part : parts(at, out.size())) {
    for (std::uint64_t done = 0; done < part.length;) {
      const MutableByteSpan to = out.subspan(part.at - at + done, part.length - done);
      const auto count = files_[part.image]->read(part.offset + done, to);
      if (!count) return fail(count.error());
      if (*count == 0) return fail(Code::kCorrupt, "bundle.read");
      done += *count;
    }
  }
  return {};
}

}  // namespace stdchk::tools
