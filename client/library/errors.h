#pragma once

#include <string>

#include "core/base/result.h"

namespace stdchk::client::library {

/// Each of these sets errno and the calling thread's last failure, and returns -1.
int failed(const Error& error);
/// `text` is a whole sentence; errno is the one of `code`.
int failed(Code code, const std::string& text);
/// For errnos that have no code of their own.
int failed_system(int os_errno, const std::string& text);

/// Returns 0 for a success, otherwise failed().
int ended(const Status& status);

}  // namespace stdchk::client::library
