#pragma once

#include <cstdint>
#include <string>

#include "core/image_name.h"

namespace stdchk::tools {

/// Now, for people and for drained_since(): 2026-01-02 03:04:05 +0100.
std::string text_of_now();

/// How many images of the set have come into `folder` of a drain directory after the second
/// `when`, a text_of_now(). What is there of before may be older versions of them. None where
/// `when` is not such a text.
///
/// Not: exact where the clock of the storage differs from that of this machine.
std::uint64_t drained_since(const std::string& drain, const std::string& folder,
                            const ImageName& set, const std::string& when);

}  // namespace stdchk::tools
