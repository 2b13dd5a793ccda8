#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

/// The small files that a pool's programs leave for each other.
namespace stdchk {

/// Reads a file that holds a secret or a key. Refuses a file that other users can access, or whose
/// owner is neither this user nor root. Accepts a pipe, too. Returns at most `bytes_max` + 1 bytes;
/// the extra byte shows that the file is longer. The error is a sentence with advice for a person.
tl::expected<std::string, std::string> read_private_file(const std::string& path,
                                                         std::size_t bytes_max);
/// Reads a secret from such a file, which has 32 hexadecimal digits and perhaps a line end. Returns
/// 16 bytes, then zeros as HMAC pads its keys. Refuses a secret that a person seems to have typed.
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
