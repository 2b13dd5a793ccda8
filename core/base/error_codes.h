#pragma once

#include <cstdint>
#include <string_view>

namespace stdchk {

/// Tells a caller how to continue after an error.
enum class Retry : std::uint8_t {
  kNo,         ///< the same request fails again
  kSamePeer,   ///< ask the same peer again, at once
  kOtherPeer,  ///< another copy or another benefactor may answer
  kBackOff,    ///< the same request may succeed later; the server says after how long
};

// Every error code: name, number on the wire, errno for applications, retry class, and a sentence
// that tells a person what to do. Numbers are never reused; new codes go to the end.
#define STDCHK_ERROR_CODES(X)                                                                      \
  X(kInternal, 1, EIO, kNo,                                                                        \
    "An internal rule of stdchk was broken; please report it with the log.")                       \
  X(kInvalidArgument, 2, EINVAL, kNo, "An argument is not valid; see the message for which one.")  \
  X(kNotFound, 3, ENOENT, kNo, "There is no such file or directory in the pool.")                  \
  X(kExists, 4, EEXIST, kNo, "The name exists already.")                                           \
  X(kNotDirectory, 5, ENOTDIR, kNo, "A part of the path is not a directory.")                      \
  X(kIsDirectory, 6, EISDIR, kNo, "The path is a directory.")                                      \
  X(kNotEmpty, 7, ENOTEMPTY, kNo, "The directory is not empty.")                                   \
  X(kNameTooLong, 8, ENAMETOOLONG, kNo, "The name is longer than 255 bytes.")                      \
  X(kPermission, 9, EACCES, kNo, "The permissions do not allow this.")                             \
  X(kNoSpace, 10, ENOSPC, kBackOff,                                                                \
    "The pool is full and no drained image can be given up; add benefactors, delete images, or "   \
    "wait for the drain.")                                                                         \
  X(kDeadline, 11, ETIMEDOUT, kBackOff,                                                            \
    "No answer came before the deadline; the peer may be down or overloaded.")                     \
  X(kPeerLost, 12, EIO, kOtherPeer, "The connection to the peer was lost.")                        \
  X(kManagerLost, 13, EIO, kBackOff,                                                               \
    "The manager does not answer; see `stdchk status`, and the manager's log if it has ended.")    \
  X(kRefused, 14, EACCES, kNo, "The peer refused the connection: wrong pool secret or version.")   \
  X(kFenced, 15, EIO, kNo,                                                                         \
    "This session was ended by the manager because its lease ran out; open the file again.")       \
  X(kStale, 16, ESTALE, kSamePeer, "The file has a newer version or was removed; open it again.")  \
  X(kCorrupt, 17, EIO, kOtherPeer, "The bytes do not match their checksum.")                       \
  X(kDataLost, 18, EIO, kNo,                                                                       \
    "Chunks of this image were only on benefactors that are gone, and it was not drained.")        \
  X(kTooLarge, 19, EFBIG, kNo, "The size is above a limit of stdchk.")                             \
  X(kNoMemory, 20, ENOMEM, kBackOff, "Memory could not be had; lower the sizes asked for.")        \
  X(kMemlock, 21, ENOMEM, kNo,                                                                     \
    "The locked-memory limit is too small; raise it with `ulimit -l` or in limits.conf.")          \
  X(kUnsupported, 22, EOPNOTSUPP, kNo, "stdchk does not support this operation.")                  \
  X(kMalformed, 23, EPROTO, kNo,                                                                   \
    "A message could not be decoded; the peers' versions may differ.")                             \
  X(kSystem, 24, EIO, kNo, "A system call failed.")                                                \
  X(kBusy, 25, EBUSY, kBackOff, "The resource is in use; try again later.")                        \
  X(kCrossesDirectory, 26, EINVAL, kNo, "A directory cannot be moved into itself.")                \
  X(kReadOnly, 27, EROFS, kNo, "The pool does not accept changes at present.")                     \
  X(kNoAttribute, 28, ENODATA, kNo, "There is no such extended attribute.")                        \
  X(kRange, 29, ERANGE, kNo, "The buffer is too small for the answer.")                            \
  X(kConfig, 30, EINVAL, kNo, "The configuration is not valid.")                                   \
  X(kCancelled, 31, ECANCELED, kNo, "The operation was cancelled because its owner shut down.")    \
  X(kDrainFailed, 32, EIO, kBackOff,                                                               \
    "The copy to the drain directory failed; see the benefactor's log and the directory's space.") \
  X(kWouldBlock, 33, EAGAIN, kSamePeer, "The operation would have to wait.")

enum class Code : std::uint16_t {
#define STDCHK_CODE_ENUM(name, number, os, retry, text) name = number,
  STDCHK_ERROR_CODES(STDCHK_CODE_ENUM)
#undef STDCHK_CODE_ENUM
};

/// Returns the code's name without the leading k, for logs and JSON ("NoSpace").
std::string_view code_name(Code code);
Retry retry_class(Code code);
/// Returns the code with that number on the wire; kInternal if this build does not know the number.
Code code_from_number(std::uint16_t number);

}  // namespace stdchk
