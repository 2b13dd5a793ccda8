#pragma once

#include <curl/curl.h>

#include "core/base/problem.h"

namespace stdchk {

/// A CurlLibrary holds the functions of libcurl that this project calls.
struct CurlLibrary {
  decltype(&::curl_easy_init) init = nullptr;
  decltype(&::curl_easy_setopt) set = nullptr;
  decltype(&::curl_easy_perform) perform = nullptr;
  decltype(&::curl_easy_getinfo) get = nullptr;
  decltype(&::curl_easy_reset) reset = nullptr;
  decltype(&::curl_easy_cleanup) cleanup = nullptr;
  decltype(&::curl_easy_strerror) error_text = nullptr;
  decltype(&::curl_slist_append) append = nullptr;
  decltype(&::curl_slist_free_all) free_all = nullptr;

  /// Loads libcurl.so.4 at the first call, and keeps it until the process ends. So programs that
  /// never use an object store start no slower, and need no libcurl.
  ///
  /// Errors: kUnsupported when the library is absent, or older than 7.75, which cannot sign.
  /// Threads: any.
  static Outcome<const CurlLibrary*> load();
};

}  // namespace stdchk
