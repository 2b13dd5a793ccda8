#include "tests/unit/manager/world.h"
