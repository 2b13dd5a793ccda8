// The headers of the standard and of two small libraries that most sources include. Meson's
// option precompiled_headers has them compiled once for each library; docs/decisions/0041 has its
// limits. No source includes this file. No #pragma once: the compiler warns of it in
// a file that is compiled by itself.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tl/expected.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
