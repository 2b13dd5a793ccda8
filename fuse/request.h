#pragma once

#ifndef FUSE_USE_VERSION
#define FUSE_USE_VERSION 312
#endif
#include <fuse_lowlevel.h>

#include <cstddef>
#include <string_view>

#include "client/api/is_gone.h"
#include "core/base/result.h"
#include "fuse/handle.h"
#include "fuse/node_table.h"

/// Answers to requests of the kernel. Each request is answered once, on any thread; the answer ends
/// it.
namespace stdchk::mount {

/// Answers with success, or with the errno of the error.
void reply(fuse_req_t request, const Status& status);
/// Does what reply() does for a call on an open file, and names the file in the log.
void reply_for(const NodeTable& nodes, const Node& node, fuse_req_t request, const Status& status);
/// Answers with an errno, and counts the error.
void reply_error(fuse_req_t request, int number);
/// Answers a getxattr or listxattr: with the length of the value if `size` is 0, else with the
/// value.
void reply_sized(fuse_req_t request, std::string_view value, std::size_t size);

using client::is_gone;

/// The open file that the kernel names.
inline Handle& handle_of(fuse_file_info* info) { return *reinterpret_cast<Handle*>(info->fh); }

}  // namespace stdchk::mount
