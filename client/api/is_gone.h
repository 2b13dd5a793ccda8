#pragma once

#include "core/base/result.h"

namespace stdchk::client {

/// Whether a question failed because its file or directory is no more. A caller that has the file
/// from a listing goes on without it: others remove files at any time.
inline bool is_gone(const Error& error) {
  return error.code == Code::kNotFound || error.code == Code::kStale;
}

}  // namespace stdchk::client
