#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/limits.h"
#include "core/base/mutex.h"
#include "core/messages/messages.h"
#include "core/policy/policy.h"
#include "transport/rpc.h"
