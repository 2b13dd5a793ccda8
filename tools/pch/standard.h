// core/pch/standard.h, and the JSON library that most commands include. The same rules hold.
#include <nlohmann/json.hpp>

#include "core/pch/standard.h"
