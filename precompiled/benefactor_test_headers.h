#include "tests/support/catch.h"
#include "tests/unit/benefactor/support.h"
