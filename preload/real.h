#pragma once

#include <dlfcn.h>

/// The C library's own function of this name, which this library hides from the program.
#define STDCHK_REAL(name)                                               \
  ([] {                                                                 \
    static const auto stdchk_real_ =                                    \
        reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name)); \
    return stdchk_real_;                                                \
  }())
