#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

/// The messages between stdchk-pager and a program that maps an image.
///
/// The socket is of type SOCK_SEQPACKET: a message arrives whole. Both ends run on one host and
/// come from one build, so that integers have the host's byte order. Every message is a structure
/// of fixed length.
///
///     program                               page server
///     MapRequest  [+ source file]     ->
///                                     <-    MapReply  + memory file, open for reading
///     maps the memory file privately, registers it with a userfaultfd
///     Registered  + userfaultfd       ->
///                                     <-    Served
///     FetchRequest                    ->    any number of times, one at a time
///                                     <-    FetchReply
///     closes the socket               ->    the end of the mapping
namespace stdchk::pager {

inline constexpr std::uint32_t kProtocol = 0x70670001;  ///< changes with any message
inline constexpr std::size_t kImageNameBytesMax = 4096;
inline constexpr std::size_t kReasonBytesMax = 512;
inline constexpr std::uint64_t kFetchBytesMax = std::uint64_t{64} << 20;  ///< of one FetchRequest

/// Asks for the memory of an image.
struct MapRequest {
  std::uint32_t protocol = kProtocol;
  std::uint32_t from_file = 0;          ///< 1: the message carries the file with the image's bytes
  std::uint64_t offset = 0;             ///< a multiple of the page size
  std::uint64_t length = 0;             ///< 0: up to the end
  char image[kImageNameBytesMax] = {};  ///< ends with a zero byte
};

/// Answers MapRequest. With `error` 0 the message carries the memory file.
struct MapReply {
  std::int32_t error = 0;  ///< errno
  std::uint32_t reserved = 0;
  std::uint64_t length = 0;  ///< bytes of the image in the wanted range
  char reason[kReasonBytesMax] = {};
};

/// Says where the range is mapped. The message carries the userfaultfd.
struct Registered {
  std::uint64_t address = 0;
  std::uint64_t length = 0;        ///< whole pages
  std::uint32_t follows_fork = 0;  ///< the userfaultfd reports fork(2)
  std::uint32_t reserved = 0;
};

struct Served {
  std::int32_t error = 0;
  std::uint32_t reserved = 0;
};

/// Asks for pages of the mapping that the program will need. `offset` counts from its start.
struct FetchRequest {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct FetchReply {
  std::int32_t error = 0;
  std::uint32_t reserved = 0;
  std::uint64_t offset = 0;  ///< of the request
};

static_assert(std::is_trivially_copyable_v<MapRequest> && std::is_trivially_copyable_v<MapReply>);

/// Copies `text` into a field of a message, cut to what fits, with a zero byte behind it.
template <std::size_t N>
void put_text(char (&field)[N], const char* text) {
  std::strncpy(field, text, N - 1);
  field[N - 1] = '\0';
}

}  // namespace stdchk::pager
