#pragma once

#include "core/base/result.h"

namespace stdchk::client {

/// Whether a question failed because someone has removed its file or directory. A caller that walks
/// a listing skips such a file.
inline bool is_gone(const Error& error) {
  return error.code == Code::kNotFound || error.code == Code::kStale;
}

}  // namespace stdchk::client
