#include "tests/conformance/remote.h"
