#pragma once

#include <string>
#include <string_view>

#include "core/messages/messages.h"
#include "core/result.h"
#include "core/secret.h"

/// The small files that a pool's programs leave for each other.
namespace stdchk {

/// The secret in a file of 32 hexadecimal digits, which may end with a line, and which its owner
/// alone may read: this user, or root. A pipe will do, too. The error is a sentence for a person:
/// what is wrong, and what to do.
tl::expected<msg::Secret, std::string> read_secret_file(const std::string& path);
/// For what needs a key: the file's 16 bytes, and zeros behind, as HMAC itself would fill them up.
Secret to_key(const msg::Secret& secret);

/// Writes `text` under `path` at once: a reader finds the whole file or none. For ready files and
/// address files; not durable.
Status write_file_at_once(const std::string& path, std::string_view text);

}  // namespace stdchk
