#pragma once

#include <rdma/fabric.h>

#include <memory>
#include <string_view>

#include "core/base/result.h"

namespace stdchk::transport::ofi {

/// The provider of libfabric that this transport uses.
inline constexpr std::string_view kProvider = "verbs";

/// A FabricLibrary holds the functions that libfabric exports. All its other functions are inline
/// calls of objects that these return.
struct FabricLibrary {
  decltype(&::fi_version) version = nullptr;
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;

  /// Loads libfabric.so.1 at the first call, and keeps it until the process ends. A program
  /// that is linked to libfabric loads all providers at every start. Debian's PSM library alone
  /// measures the processor's clock for 0.2 s.
  ///
  /// Errors: kUnsupported when the library is absent; the log says why.
  /// Threads: any.
  static Result<const FabricLibrary*> load();
};

struct InfoDeleter {
  const FabricLibrary* library = nullptr;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoDeleter>;

}  // namespace stdchk::transport::ofi
