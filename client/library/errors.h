#pragma once

#include <string>

#include "core/base/problem.h"
#include "core/base/result.h"

namespace stdchk::client::library {

/// Sets errno and the calling thread's last failure. Returns -1, like the other three functions here.
int failed(const Error& error);
int failed(const Problem& problem);
/// Sets the errno that belongs to `code`. `text` is a whole sentence.
int failed(Code code, const std::string& text);
/// Sets `os_errno` and the code STDCHK_ERROR_SYSTEM, because no other code fits this errno.
int failed_system(int os_errno, const std::string& text);

/// Returns 0 for a success, otherwise failed().
int ended(const Status& status);

}  // namespace stdchk::client::library
