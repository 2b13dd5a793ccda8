#pragma once

#include <sys/types.h>

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/descriptor.h"
#include "core/base/problem.h"
#include "core/base/result.h"
#include "core/crypto/secret.h"
#include "core/values/types.h"

/// The small files that a pool's programs leave for each other.
namespace stdchk {

/// Reads a file that holds a secret or a key. Refuses a file that other users can access, or whose
/// owner is neither this user nor root. Accepts a pipe, too. Returns at most `bytes_max` + 1 bytes;
/// the extra byte shows that the file is longer. The error is a sentence with advice for a person.
Outcome<std::string> read_private_file(const std::string& path, std::size_t bytes_max);
/// Reads a secret from such a file, which has 32 hexadecimal digits and perhaps a line end. Returns
/// 16 bytes, then zeros as HMAC pads its keys. Refuses a secret that a person seems to have typed.
Outcome<Secret> read_secret_file(const std::string& path);
/// The same of the file's text; `path` is named in the sentence.
Outcome<Secret> parse_secret(const std::string& path, std::string_view text);
/// Reads pairs of hexadecimal digits into `bytes`. False: it is not just these.
bool parse_hex(std::string_view digits, MutableByteSpan bytes);
std::string hex_text(ByteSpan bytes);
/// Returns `bytes` unpredictable bytes as hexadecimal digits, for names that no user can guess.
std::string random_hex(std::size_t bytes);

/// A NewFile says how write_file_at_once() makes a file.
struct NewFile {
  mode_t mode = 0600;             ///< less the bits of umask(2)
  bool durable = false;           ///< the file and its name survive a power failure
  std::optional<timespec> mtime;  ///< the time of its last change; empty: now
};

/// Writes `text` under `path` at once: a reader finds the old file or the new one, whole. Other
/// users may write in the folder: no link is followed, and no file of theirs is written to.
Status write_file_at_once(const std::string& path, std::string_view text, const NewFile& how = {});
/// Removes the file or link named `path`, and makes an empty file, open for writing. Other users
/// may write in the folder: the file that they put there meanwhile is an error (EEXIST).
Result<Descriptor> make_file_anew(const std::string& path, mode_t mode);
/// Reads a regular file of this user or of root. Other users may write in its folder: links are not
/// followed, and no FIFO is waited for. Errors. kTooLarge: the file is longer than `bytes_max`.
Result<std::string> read_own_file(const std::string& path, std::size_t bytes_max);

}  // namespace stdchk
