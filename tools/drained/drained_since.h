#pragma once

#include <cstdint>
#include <string>

#include "core/policy/image_name.h"

namespace stdchk::tools {

/// The present time as text, such as 2026-01-02 03:04:05.123456789 +0100, for people and for
/// drained_since().
std::string text_of_now();

/// How many images of the set have arrived in `folder` of a drain directory after the time `when`,
/// a text_of_now(). Earlier versions wrote no fraction: then files count after that second. Earlier
/// files may be older versions of the images. Zero if `when` is no such text.
///
/// Not: exact where the clocks of the storage and of this machine differ.
std::uint64_t drained_since(const std::string& drain, const std::string& folder,
                            const ImageName& set, const std::string& when);

}  // namespace stdchk::tools
