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

#include "core/messages/messages.h"
#include "core/policy/policy.h"
#include "core/runtime/reactor.h"
#include "manager/clients/clients.h"
#include "manager/clients/sessions.h"
#include "manager/pool/pool.h"
#include "transport/rpc.h"
