#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

/// The small files that a pool's programs leave for each other.
namespace stdchk {

/// The text of a file that holds a secret or a key: its owner alone may read it, who is this user
/// or root. A pipe will do, too. At most `bytes_max` bytes and one more, which says that it is
/// longer. The error is a sentence for a person: what is wrong, and what to do.
tl::expected<std::string, std::string> read_private_file(const std::string& path,
                                                         std::size_t bytes_max);
/// The secret in such a file of 32 hexadecimal digits, which may end with a line: the 16 bytes, and
/// zeros behind, as HMAC itself would fill them up. One that somebody has typed is refused.
tl::expected<Secret, std::string> read_secret_file(const std::string& path);
/// The same of the file's text; `path` is named in the sentence.
tl::expected<Secret, std::string> parse_secret(const std::string& path, std::string_view text);
/// Reads pairs of hexadecimal digits into `bytes`. False: it is not just these.
bool parse_hex(std::string_view digits, MutableByteSpan bytes);
std::string hex_text(ByteSpan bytes);

/// Writes `text` under `path` at once: a reader finds the whole file or none. For ready files and
/// address files; not durable.
Status write_file_at_once(const std::string& path, std::string_view text);

}  // namespace stdchk
