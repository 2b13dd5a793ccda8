#pragma once

#include <string>
#include <vector>

#include "core/base/problem.h"

namespace stdchk::fork::vm {

/// Runs qemu-img(1) with these words and returns its output. Errors: a sentence.
Outcome<std::string> qemu_img(std::vector<std::string> words);

/// Makes a qcow2 file that holds the changes to `base`, by qemu-img(1). `base` may be in use by a
/// running machine. Errors: a sentence.
Outcome<void> make_overlay(const std::string& base, const std::string& overlay);

}  // namespace stdchk::fork::vm
