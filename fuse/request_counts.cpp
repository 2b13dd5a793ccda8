#include "fuse/request_counts.h"

namespace stdchk::mount {
namespace {

constexpr std::array<std::string_view, kRequestKinds> kNames{
    "lookup",      "forget",     "getattr",  "setattr", "readlink", "mknod",    "mkdir",
    "unlink",      "rmdir",      "symlink",  "rename",  "link",     "open",     "create",
    "read",        "write",      "flush",    "release", "fsync",    "opendir",  "readdir",
    "readdirplus", "releasedir", "fsyncdir", "statfs",  "setxattr", "getxattr", "listxattr",
    "removexattr", "fallocate",  "getlk",    "setlk",   "flock",    "lseek"};

}  // namespace

std::string_view name_of(RequestKind kind) { return kNames[static_cast<std::size_t>(kind)]; }

}  // namespace stdchk::mount
