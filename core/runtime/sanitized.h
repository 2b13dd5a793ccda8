#pragma once

// STDCHK_SANITIZED is defined where AddressSanitizer or ThreadSanitizer is built in. GCC says so by
// macros, and Clang by __has_feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STDCHK_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STDCHK_SANITIZED 1
#endif
#endif
