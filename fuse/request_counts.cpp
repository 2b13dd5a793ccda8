#include "fuse/request_counts.h"

#include <utility>

namespace stdchk::mount {
namespace {

constexpr std::array<std::string_view, kRequestKinds> kNames{
    "lookup", "forget",   "getattr",  "setattr",     "readlink",    "mknod",
    "mkdir",  "unlink",   "rmdir",    "symlink",     "rename",      "link",
    "open",   "create",   "read",     "write",       "flush",       "release",
    "fsync",  "opendir",  "readdir",  "readdirplus", "releasedir",  "fsyncdir",
    "statfs", "setxattr", "getxattr", "listxattr",   "removexattr", "fallocate"};

template <std::size_t... Index>
std::array<metrics::Histogram, kRequestKinds> make_times(std::index_sequence<Index...>) {
  return {((void)Index, metrics::Histogram(metrics::kTimeBounds))...};
}

}  // namespace

std::string_view name_of(RequestKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

RequestCounts::RequestCounts() : times_(make_times(std::make_index_sequence<kRequestKinds>())) {}

}  // namespace stdchk::mount
