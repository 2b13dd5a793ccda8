#include "transport/ofi/library.h"

#include <dlfcn.h>

#include <optional>

#include "core/base/log.h"

namespace stdchk::transport::ofi {
namespace {

constexpr const char* kFile = "libfabric.so.1";

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

std::optional<FabricLibrary> load_once() {
  // Local: its symbols serve no other library. A job's MPI may bring a libfabric of its own.
  void* const file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  FabricLibrary library;
  if (file != nullptr && find(file, "fi_version", library.version) &&
      find(file, "fi_getinfo", library.getinfo) && find(file, "fi_dupinfo", library.dupinfo) &&
      find(file, "fi_freeinfo", library.freeinfo) && find(file, "fi_fabric", library.fabric)) {
    return library;
  }
  const char* const reason = ::dlerror();
  log::warning("{} cannot be loaded: {}", kFile, reason == nullptr ? "unknown reason" : reason);
  return std::nullopt;
}

}  // namespace

Result<const FabricLibrary*> FabricLibrary::load() {
  static const std::optional<FabricLibrary> loaded = load_once();
  if (!loaded) {
    return fail(Code::kUnsupported, "ofi.open: libfabric is absent; install it, or use verbs");
  }
  return &*loaded;
}

}  // namespace stdchk::transport::ofi
