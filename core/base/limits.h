#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

/// Every limit of the system, in one place. Relations between limits are proved at compile time.
namespace stdchk::limits {

using namespace std::chrono_literals;

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;

// Chunks and extents.
inline constexpr std::uint32_t kChunkBytesMin = 64 * kKiB;
inline constexpr std::uint32_t kChunkBytesDefault = 1 * kMiB;
inline constexpr std::uint32_t kChunkBytesMax = 16 * kMiB;
inline constexpr std::uint32_t kExtentAlignment = 64;
inline constexpr std::uint32_t kExtentHeaderBytes = 64;
inline constexpr std::uint32_t kNameLeafBytes = 16 * kKiB;
inline constexpr std::uint64_t kGrantBytesDefault = 32 * kMiB;
inline constexpr std::uint64_t kFileBytesMax = std::uint64_t{1} << 60;

// Messages.
inline constexpr std::size_t kMessageBytesMax = 256 * kKiB;
inline constexpr std::size_t kMapPageSlicesMax = 1536;  ///< slices, and also chunks, in one message
inline constexpr std::size_t kLogPieceBytesMax = 128 * kKiB;
inline constexpr std::size_t kLogCopies = 3;  ///< benefactors that keep the metadata log
inline constexpr std::uint64_t kScrubRateDefault = 32 * kMiB;  ///< a second, of each benefactor
inline constexpr std::uint64_t kLogShare = 128;  ///< of a benefactor's memory, for that log
/// The log may grow to that part of a benefactor's memory, beside it, and to that much at least.
inline constexpr std::uint64_t kLogGrowthShare = 2;
inline constexpr std::uint64_t kLogGrowthBytesMin = 16 * kMiB;
inline constexpr std::size_t kPlaceBatchMax = 512;  ///< chunks in one place call
inline constexpr std::size_t kGrantsPerReplyMax = 256;
inline constexpr std::size_t kDirectoryPageMax = 512;  ///< entries in one ReadDirectory reply
inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr std::size_t kPathBytesMax = 4096;
inline constexpr std::size_t kXattrBytesMax = 64 * kKiB;
inline constexpr std::size_t kSymlinkBytesMax = 4095;
inline constexpr std::size_t kLinksMax = 32000;  ///< names of one file
inline constexpr std::size_t kAddressBytesMax = 512;
inline constexpr std::size_t kMemberIdBytes = 16;
inline constexpr std::size_t kKeyBytes = 32;        ///< size of keys and proofs in messages
inline constexpr std::size_t kAddressesMax = 16;    ///< of one benefactor
inline constexpr std::size_t kCopiesMax = 16;       ///< of one chunk
inline constexpr std::uint32_t kStripeDataMin = 2;  ///< chunks of a stripe, in a policy
inline constexpr std::uint32_t kStripeDataMax = 16;
inline constexpr std::uint32_t kStripeParityMax = 4;
inline constexpr std::size_t kStripeMembersMax = kStripeDataMax + kStripeParityMax;
inline constexpr std::size_t kSetsMax = 512;                  ///< in one reply
inline constexpr std::size_t kSetProblemsMax = 128;           ///< sets in it with their problem
inline constexpr std::size_t kSetProblemBytesMax = 400;       ///< of a problem's text
inline constexpr std::size_t kPolicySettingsMax = 64;         ///< of one folder
inline constexpr std::size_t kDrainedSetsMax = 16;            ///< that a folder remembers
inline constexpr std::uint32_t kDrainedPartBytes = kMiB;      ///< read at once from a long chunk
inline constexpr std::size_t kDrainChecksMax = 48;            ///< files in one check
inline constexpr std::size_t kHolesMax = 1024;                ///< holes in a commit
inline constexpr std::size_t kListItemsMax = 4096;            ///< in any other list of a message
inline constexpr std::size_t kPeerQueueBytesMax = 32 * kMiB;  ///< waiting to be sent on one link

// Window.
inline constexpr std::uint64_t kWindowBytesDefault = 64 * kMiB;
inline constexpr std::uint32_t kStripeWidthDefault = 4;
inline constexpr std::size_t kReactorPostsMax = 65536;

// Time. Every wait in the system is bounded by a constant of this group.
inline constexpr auto kCallDeadline = 10s;  ///< one request to the manager or a benefactor
/// A client's call to the manager, until another manager has answered.
inline constexpr auto kManagerDeadline = 25s;
inline constexpr auto kRmaDeadline = 10s;  ///< one one-sided write or read
inline constexpr auto kConnectDeadline = 3s;
/// For reading manifests while clients wait for a new manager.
inline constexpr auto kManifestsLongest = 10s;
inline constexpr auto kCongestionRetry = 100us;  ///< wait after a link's send queue was full
inline constexpr auto kOperationDeadline = 30s;  ///< one call of an application
inline constexpr auto kHeartbeatInterval = 1s;
inline constexpr auto kLease = 5s;       ///< a peer that is silent for so long counts as gone
inline constexpr auto kCacheLease = 1s;  ///< maximum age of a cached name or attribute

static_assert(kChunkBytesMin % kNameLeafBytes == 0);
static_assert(kExtentHeaderBytes % kExtentAlignment == 0);
static_assert(kGrantBytesDefault > kChunkBytesMax + kExtentHeaderBytes);
static_assert(kLease >= 3 * kHeartbeatInterval);
static_assert(kConnectDeadline < kCallDeadline && kCallDeadline < kOperationDeadline);
static_assert(kDrainChecksMax * (kPathBytesMax + 64) < kMessageBytesMax);
static_assert(kSetsMax * (kNameBytesMax + 96) + kSetProblemsMax * kSetProblemBytesMax <
              kMessageBytesMax);
static_assert(kRmaDeadline < kOperationDeadline && kManagerDeadline < kOperationDeadline);

}  // namespace stdchk::limits
