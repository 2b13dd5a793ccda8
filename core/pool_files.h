#pragma once

#include <string>
#include <string_view>

#include "core/messages/messages.h"
#include "core/result.h"

/// The small files that a pool's programs leave for each other.
namespace stdchk {

/// The secret in a file of 32 hexadecimal digits. kSystem with the errno when it cannot be read,
/// kConfig when it holds something else.
Result<msg::Secret> read_secret_file(const std::string& path);

/// Writes `text` under `path` at once: a reader finds the whole file or none. For ready files and
/// address files; not durable.
Status write_file_at_once(const std::string& path, std::string_view text);

}  // namespace stdchk
