#include "tests/sim/plain_client.h"
