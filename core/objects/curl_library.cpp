#include "core/objects/curl_library.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <string>

namespace stdchk {
namespace {

constexpr const char* kFile = "libcurl.so.4";
constexpr unsigned kSignsSince = 0x074B00;  // 7.75.0

template <typename Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

tl::unexpected<Problem> unusable(std::string why) {
  return problem(Code::kUnsupported, "objects.curl", 0,
                 fmt::format("An object store needs {}, version 7.75 or later: {}. Install it "
                             "(Debian: libcurl4)",
                             kFile, why));
}

Outcome<CurlLibrary> load_once() {
  // Local: its symbols serve no other library.
  void* const file = ::dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* const why = ::dlerror();
    return unusable(why == nullptr ? "it cannot be loaded" : why);
  }
  decltype(&::curl_global_init) start = nullptr;
  decltype(&::curl_version_info) version_info = nullptr;
  CurlLibrary curl;
  const bool whole = look_up(file, "curl_global_init", start) &&
                     look_up(file, "curl_version_info", version_info) &&
                     look_up(file, "curl_easy_init", curl.init) &&
                     look_up(file, "curl_easy_setopt", curl.set) &&
                     look_up(file, "curl_easy_perform", curl.perform) &&
                     look_up(file, "curl_easy_getinfo", curl.get) &&
                     look_up(file, "curl_easy_reset", curl.reset) &&
                     look_up(file, "curl_easy_cleanup", curl.cleanup) &&
                     look_up(file, "curl_easy_strerror", curl.error_text) &&
                     look_up(file, "curl_slist_append", curl.append) &&
                     look_up(file, "curl_slist_free_all", curl.free_all);
  if (!whole) return unusable("it lacks a function");
  const curl_version_info_data* const version = version_info(CURLVERSION_NOW);
  if (version->version_num < kSignsSince)
    return unusable(fmt::format("it is {}", version->version));
  if (start(CURL_GLOBAL_DEFAULT) != CURLE_OK) return unusable("it cannot start");
  return curl;
}

}  // namespace

Outcome<const CurlLibrary*> CurlLibrary::load() {
  static const Outcome<CurlLibrary> loaded = load_once();
  if (!loaded) return problem(loaded.error());
  return &*loaded;
}

}  // namespace stdchk
