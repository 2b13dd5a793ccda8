#pragma once

#include <string>
#include <tl/expected.hpp>

namespace stdchk::fork::vm {

/// Makes a qcow2 file that holds the changes to `base`, by qemu-img(1). `base` may be in use by a
/// running machine. Errors: a sentence.
tl::expected<void, std::string> make_overlay(const std::string& base, const std::string& overlay);

}  // namespace stdchk::fork::vm
